#!/usr/bin/env bash
# What `strait` does with questions that make no sense, and with places that it cannot write to: it says what is wrong,
# ends with status 2 (what was asked is wrong) or 1 (it failed), and changes nothing.
#   test_commands.sh <strait>
set -euo pipefail

strait="$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache"

# refuses <status> <words of the message> <arguments...>
refuses() {
  local wanted="$1" words="$2" status=0
  shift 2
  timeout 60 "$strait" "$@" >out 2>err </dev/null || status=$?
  if [[ $status -ne "$wanted" ]] || ! grep -qF -- "$words" err; then
    echo "strait $*: status $status and this, not $wanted and \"$words\":" && cat err && exit 1
  fi
}

refuses 2 "there is no subcommand 'tpoo'" tpoo
refuses 2 "A subcommand is required"
refuses 2 "--nthreads: Value 0 not in range 1 to" perf all-reduce -t 0
refuses 2 "--nthreads: Value 100000 not in range 1 to" perf all-reduce -t 100000
refuses 2 "--iters: Value 0 not in range 1 to" perf all-reduce -n 0
refuses 2 "sizes. Give a larger step" perf all-reduce -b 1 -e 4G -i 1
refuses 2 "excludes" topo --list --json
refuses 2 "--parameters requires --train" sim all-reduce --topology laptop --parameters 1M
refuses 1 "--train needs --parameters, those of the model, and --compute-ms" sim all-reduce --topology laptop --train
refuses 2 "--ranks: Value 1025 not in range 1 to 1024" explain all-reduce --topology laptop --ranks 1025

STRAIT_ALGORITM=ring refuses 1 "STRAIT_ALGORITM is no variable of Strait" env
STRAIT_SLICE_BYTES=x refuses 1 'STRAIT_SLICE_BYTES="x" is not accepted' env
STRAIT_SLICE_BYTES=x refuses 1 'STRAIT_SLICE_BYTES="x" is not accepted' explain all-reduce 1K

# Known before anything is measured, so that no table is printed, and no file is left.
small=(perf all-reduce -t 2 -b 8 -e 8 -n 1)
refuses 1 "Cannot write $work/none/results.json: No such file" "${small[@]}" --json "$work/none/results.json"
[[ ! -s out ]] || { echo "it measured before it looked for the folder" && exit 1; }
refuses 1 "Cannot write $work: Is a directory" "${small[@]}" --json "$work"
refuses 1 "Cannot write none/plot.svg: No such file" "${small[@]}" --json results.json --plot none/plot.svg
refuses 2 "cannot write $work: Is a directory" doctor --calibrate -o "$work"
refuses 2 "there is no calibration at none/file.json" doctor --plans -o none/file.json
[[ ! -e results.json && ! -e none && ! -e "$work.measuring" ]] || { echo "a refused run left a file" && exit 1; }

# What calls go by here, and the choice does not.
for where in "" "--topology 10x-rtx3090"; do
  # shellcheck disable=SC2086  # one word an argument
  STRAIT_ALGORITHM=ring "$strait" explain all-reduce 1K $where >out 2>/dev/null
  grep -q "calls go by STRAIT_ALGORITHM=ring here" out || { echo "explain $where" && cat out && exit 1; }
done

# A full disk is no success.
for command in version --help "perf --help" "topo --list" "explain all-reduce 1K --topology 4x-h200" "plan all-reduce --algorithm ring" \
  "${small[*]}"; do
  status=0
  # shellcheck disable=SC2086  # one word an argument
  timeout 60 "$strait" $command >/dev/full 2>err </dev/null || status=$?
  if [[ $status -ne 1 ]] || ! grep -q "cannot write to standard output" err; then
    echo "strait $command >/dev/full: status $status" && cat err && exit 1
  fi
done

# Where nothing can be said, a measurement goes on, and what is said gets into no socket.
for streams in "2>/dev/full" "2>&-" "<&- >&- 2>&-"; do
  eval "timeout 60 \"\$strait\" ${small[*]} >out $streams" || { echo "strait perf $streams: status $?" && exit 1; }
done
status=0
"$strait" trace none 2>/dev/full || status=$?
[[ $status -eq 1 ]] || { echo "strait trace none 2>/dev/full: status $status" && exit 1; }

# A good one still writes where it was told to.
"$strait" "${small[@]}" --json results.json --plot plot.svg >/dev/null
[[ -s results.json && -s plot.svg ]]

# Variables in any encoding end nothing: what is no UTF-8 in them is replaced.
for command in "${small[*]}" "explain all-reduce 1K --topology 4x-h200" "sim all-reduce --topology 4x-h200 -b 8 -e 8" \
  "sim all-reduce --topology 4x-h200 --train --parameters 1M --compute-ms 1"; do
  # shellcheck disable=SC2086  # one word an argument
  case "$command" in
    explain*) NCCL_TOPO_FILE=$'/m\xfcller.xml' timeout 60 "$strait" $command --json >strange.json 2>err ;;
    *) NCCL_TOPO_FILE=$'/m\xfcller.xml' timeout 60 "$strait" $command --json strange.json >out 2>err ;;
  esac || { echo "strait $command --json, with a strange variable: status $?" && cat err && exit 1; }
  grep -qF $'"NCCL_TOPO_FILE": "/m\xef\xbf\xbdller.xml"' strange.json || { cat strange.json && exit 1; }
  rm strange.json
done

# What was there stays where the new does not fit, and devices are written to.
cp results.json before.json
status=0
(ulimit -f 1 && exec "$strait" explain all-reduce 1K --topology 4x-h200 --svg results.json >/dev/null 2>err) || status=$?
[[ $status -eq 1 && ! -e results.json.part ]]
grep -q "Cannot write results.json: File too large" err
cmp results.json before.json
# A measurement counts also where its times cannot be kept.
(ulimit -f 0 && "$strait" "${small[@]}" 2>&1) | cat >out
grep -q "Collective test concluded" out
[[ -z "$(find "$XDG_CACHE_HOME" -name "*.new" 2>/dev/null)" ]]
ln -s results.json link.json
"$strait" "${small[@]}" --json link.json >/dev/null
[[ -L link.json && -s results.json ]]
[[ "$(cat results.json)" != "$(cat before.json)" ]]
"$strait" "${small[@]}" --json /dev/stdout >out
grep -q '"program": "strait perf"' out
