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
refuses 2 "--warmup_iters: Value -1 not in range 0 to 2147483647" perf all-reduce -w -1
refuses 2 "--check: Value -1 not in range 0 to 2147483647" perf all-reduce -c -1
refuses 2 "--run_cycles: Value -1 not in range 0 to 2147483647" perf all-reduce -N -1
refuses 2 "--cudagraph: Value -1 not in range 0 to 2147483647" perf all-reduce -G -1
refuses 2 "--stepfactor: Value -2 not in range 1 to" perf all-reduce -f -2
refuses 2 "--budget-ms: Value 0 not in range 0.000001 to 1000000000.000000" perf all-reduce --budget-ms 0
refuses 2 "--report_cputime: Value 2 not in range 0 to 1" perf all-reduce -C 2
refuses 2 "--check-limit: 1 required VALUE missing" perf all-reduce --check-limit
refuses 2 "--minbytes is above --maxbytes: 70368744177664 bytes, and 33554432. Where -b or -e is left out, its default counts" \
  perf all-reduce -b 64T
refuses 2 "--minbytes is above --maxbytes: 33554432 bytes, and 8. Where" perf all-reduce -e 8
refuses 2 "--maxbytes 3: an element of float32 has 4 bytes. Give at least as many" perf all-reduce -b 3 -e 3 -d float
refuses 2 "excludes" topo --list --json
refuses 2 "--parameters requires --train" sim all-reduce --topology laptop --parameters 1M
refuses 2 "--train needs --parameters, those of the model, and --compute-ms" sim all-reduce --topology laptop --train
refuses 2 "--ranks: Value 1025 not in range 1 to 1024" explain all-reduce --topology laptop --ranks 1025

# Every usage error names its option.
refuses 2 "--minbytes: '-1' is not a size" perf all-reduce -b -1
refuses 2 "--maxbytes: '-1' is not a size" perf all-reduce -e -1
refuses 2 "--maxbytes: 'x' is not a size" sim all-reduce -e x
refuses 2 "size: 'x' is not a size" explain all-reduce x
refuses 2 "--blocking: '5' is not a number from 0 to 3" perf all-reduce -z 5
refuses 2 "--average: '9' is not a number from 0 to 3" perf all-reduce -a 9
refuses 2 "--datatype: 'f' is not an element type" perf all-reduce -d f
refuses 2 "--datatype: 'all': one at a time" explain all-reduce -d all
refuses 2 "--parameters: 'many' is not a number" sim all-reduce --topology laptop --train --parameters many
refuses 2 "collective: 'all-reduec' is not a collective" plan all-reduec --algorithm ring

# The same mistake has the same status in every subcommand.
for command in explain sim; do
  refuses 2 "there is no machine 'none'" "$command" all-reduce --topology none
  refuses 2 "the algorithm 'none' that was asked for is unknown" "$command" all-reduce --topology laptop --algorithm none
  refuses 1 "cannot read the topology file 'none.json': No such file" "$command" all-reduce --topology none.json
done
refuses 2 "there is no machine 'none'" perf all-reduce --simulate none
refuses 2 "there is no machine 'none'" topo --from none
refuses 2 "root 64 is not a rank" explain broadcast --topology laptop -r 64
refuses 2 "--root 64 is not a rank" plan broadcast --algorithm ring --root 64
refuses 2 "--algorithm 'none' is none. There are: one_hop, two_hop," plan all-reduce --algorithm none
refuses 2 "--algorithm bruck has no such plan: it does no all-reduce of 4 ranks" plan all-reduce --algorithm bruck
refuses 2 "--algorithm peer_push has no such plan: only with --peer-memory" plan all-reduce --algorithm peer_push
STRAIT_ALGORITHM=none refuses 1 "strait perf: straitCommInitEnv: STRAIT_ALGORITHM=none names no algorithm. There are: one_hop," perf all-reduce -t 2
refuses 2 "--minbytes is above --maxbytes" sim all-reduce --topology laptop -b 1M -e 1K
refuses 2 "99 ranks are more than the 4 GPUs" explain all-reduce --topology 4x-h200 --ranks 99
refuses 2 "the name must end in .svg or .html" sim all-reduce --plot x.png
refuses 2 "send-recv depends on what each rank posts" explain send-recv

# One list of algorithms, which is no error.
for word in list "?"; do
  "$strait" plan all-reduce --algorithm "$word" >out
  for line in "one_hop" "peer_push         with --peer-memory" "hierarchical      ranks of several islands or hosts; .*" "multi_leader  .*" \
    "bruck             not this collective on so many ranks"; do
    grep -qx "$line" out || { echo "--algorithm $word lacks $line" && cat out && exit 1; }
  done
  [[ "$(wc -l <out)" == 15 ]]
done

# What would do something else than it says is refused.
refuses 2 "--stepbytes 1048576 goes beyond --maxbytes 4096 at once" perf all-reduce -f 1 -b 1K -e 4K
refuses 2 "--turns are those of Strait and a baseline" perf all-reduce --turns 7
for command in "topo --from laptop" "explain all-reduce 1K --topology laptop"; do
  # shellcheck disable=SC2086  # one word an argument
  refuses 2 "--svg x.png: the name must end in .svg" $command --svg x.png
  # shellcheck disable=SC2086
  "$strait" $command --svg /dev/stdout | grep "<svg" >/dev/null || { echo "strait $command --svg /dev/stdout" && exit 1; }
done
[[ ! -e x.png ]] || { echo "a refused drawing left a file" && exit 1; }

# What a script's unset variable leaves of an option is none that was not given.
refuses 2 "--json: the value is empty" perf all-reduce --json ""
refuses 2 "--simulate: the value is empty" perf all-reduce --simulate ""
refuses 2 "collective: the value is empty" perf ""
refuses 2 "--algorithm: the value is empty" explain all-reduce --algorithm ""
refuses 2 "--svg: the value is empty" topo --svg ""
refuses 2 "--against: the value is empty" sim all-reduce --against ""

refuses 2 "--simulate measures nothing: leave out --run_cycles, --turns, --calibrate" \
  perf all-reduce --simulate 4x-h200 -N 3 --turns 7 --calibrate
STRAIT_WIRE=int8 refuses 1 "STRAIT_WIRE=int8: wire formats are predicted for GPU ranks of one host only. Exact" \
  perf all-reduce --simulate laptop -b 1K -e 1K
STRAIT_ALGORITM=ring refuses 1 "STRAIT_ALGORITM is no variable of Strait" env
STRAIT_ALGORITM=ring refuses 1 "Did you mean STRAIT_ALGORITHM?" env
STRAIT_SLICE_BYTES=x refuses 1 'STRAIT_SLICE_BYTES="x" is not accepted' env
STRAIT_SLICE_BYTES=x refuses 1 'STRAIT_SLICE_BYTES="x" is not accepted' explain all-reduce 1K
STRAIT_SLICE_BYTES=x refuses 1 'strait perf: STRAIT_SLICE_BYTES="x" is not accepted' perf all-reduce -t 2
STRAIT_WIRE=x refuses 1 'STRAIT_WIRE="x" is not accepted' perf all-reduce --simulate 4x-h200

# What all ranks would say is said once, and before they start.
refuses 2 "--root 100 is not a rank: there are 64" perf broadcast -r 100 -t 64 -b 1K -e 1K
[[ "$(grep -c . err)" == 1 && ! -s out ]] || { echo "a wrong root was told by many" && cat err && exit 1; }
[[ "$("$strait" --version)" == "$("$strait" version)" && "$("$strait" --version)" == "strait "*", library "* ]]

# Known before anything is measured, so that no table is printed, and no file is left.
small=(perf all-reduce -t 2 -b 8 -e 8 -n 1)
refuses 1 "Cannot write $work/none/results.json: No such file or directory. Make the folder" "${small[@]}" --json "$work/none/results.json"
[[ ! -s out ]] || { echo "it measured before it looked for the folder" && exit 1; }
refuses 1 "Cannot write $work: Is a directory. Name a file" "${small[@]}" --json "$work"
refuses 1 "Cannot write /dev/full: No space left on device. Make room" explain all-reduce 1K --topology 4x-h200 --trace /dev/full
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

# The table says where floats are rounded on their way, and what asked for it.
said() {
  timeout 60 "$strait" perf "$@" >out 2>err </dev/null || { echo "strait perf $*: status $?" && cat err && exit 1; }
}
wired=(all-reduce -t 2 -b 1K -e 1K -n 1)
STRAIT_WIRE=int8 said "${wired[@]}"
grep -qx "# Wire: int8 (STRAIT_WIRE) at any size: STRAIT_WIRE_BYTES does not count here" out
STRAIT_WIRE=int8 said "${wired[@]}" --wire fp8
grep -q "^# Wire: fp8 (--wire) " out
STRAIT_WIRE=int8 said "${wired[@]}" --wire off
if grep -q Wire out; then echo "exact calls have a wire format" && exit 1; fi
predicted=(all-reduce --simulate 4x-h200 -b 64M -e 64M)
said "${predicted[@]}" --wire int8 && cp out by_option
grep -q "^# Wire: int8 (--wire) " out
STRAIT_WIRE=int8 said "${predicted[@]}"
grep -q "^# Wire: int8 (STRAIT_WIRE) " out
diff <(grep -v "^#" by_option) <(grep -v "^#" out) || { echo "predictions do not heed STRAIT_WIRE" && exit 1; }

# So does it of sizes that are rounded down to nothing.
said all-reduce -t 2 -b 3 -e 12 -f 2 -n 1
grep -qx "# Sizes up to 3 bytes are too small for 2 ranks, and measured as 0 bytes" out
said all-gather -t 2 -b 16 -e 64 -f 2 -n 1
grep -qx "# Sizes up to 16 bytes are too small for 2 ranks, and measured as 0 bytes" out
for sizes in "-b 32 -e 64" "-b 0 -e 0"; do
  # shellcheck disable=SC2086  # one word an argument
  said all-gather -t 2 $sizes -i 32 -n 1
  if grep "too small" out; then echo "all-gather $sizes" && exit 1; fi
done
# The library warns of a misspelt variable, which changes nothing: once, however many ranks a process has.
STRAIT_TIMOUT_MS=500 said all-reduce -t 2 -b 8 -e 8 -n 1
[[ "$(grep -c "STRAIT_TIMOUT_MS is no variable of Strait.*Did you mean STRAIT_TIMEOUT_MS?" err)" == 1 ]] ||
  { echo "STRAIT_TIMOUT_MS: not one warning" && cat err && exit 1; }

# The library warns once of a forced algorithm: of a call that is measured, not of what ranks tell one another.
for ranks in 2 4; do
  STRAIT_ALGORITHM=ring said all-reduce -t "$ranks" -b 1M -e 1M -n 1
  grep -q "asks for ring .* for all-reduce of 262144 float32" err || { echo "-t $ranks: no warning of ring" && cat err && exit 1; }
done

# Lines are overwritten only on terminals that can.
on_terminal() { TERM="$1" python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' "$strait" "${small[@]}" >out </dev/null; }
on_terminal xterm
grep -q $'\x1b\[K' out || { echo "no progress on a terminal" && exit 1; }
grep -q "warming up" out
small+=(-w 0)
on_terminal xterm
if grep "warming up" out; then echo "it warms up with -w 0" && exit 1; fi
on_terminal dumb
grep -q "Collective test concluded" out
if grep -q $'\x1b' out; then echo "escape sequences on a dumb terminal" && exit 1; fi

# A full disk is no success, and neither is a standard output that is closed.
for command in version --version --help "perf --help" "topo --list" "topo --from laptop --json" "explain all-reduce 1K --topology 4x-h200" \
  "plan all-reduce --algorithm ring" "sim all-reduce --topology laptop -b 8 -e 8" env "env --markdown" "${small[*]}"; do
  for streams in ">/dev/full" ">&-" "<&- >&-"; do
    status=0
    eval "timeout 60 \"\$strait\" $command </dev/null $streams" 2>err || status=$?
    if [[ $status -ne 1 ]] || ! grep -q "cannot write to standard output" err; then
      echo "strait $command $streams: status $status" && cat err && exit 1
    fi
  done
done
for command in "topo --from laptop" "explain all-reduce 1K --topology laptop"; do
  if eval "\"\$strait\" $command --svg /dev/stdout" >&- 2>err; then
    echo "strait $command --svg /dev/stdout >&-: a success" && exit 1
  fi
done
[[ "$("$strait" version 3>&1 >&- 2>&3 3>&-)" == "strait: cannot write to standard output"* ]]

# Where nothing can be said, a measurement goes on, and what is said gets into no socket.
for streams in "2>/dev/full" "2>&-"; do
  eval "timeout 60 \"\$strait\" ${small[*]} >out $streams" || { echo "strait perf $streams: status $?" && exit 1; }
done
status=0
timeout 60 "$strait" "${small[@]}" --json unheard.json <&- >&- 2>&- || status=$?
[[ $status -eq 1 && -s unheard.json ]] || { echo "strait perf <&- >&- 2>&-: status $status" && exit 1; }
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
cp plot.svg before.svg
status=0
(ulimit -f 1 && exec "$strait" explain all-reduce 1K --topology 4x-h200 --svg plot.svg >/dev/null 2>err) || status=$?
[[ $status -eq 1 && ! -e plot.svg.part ]]
grep -q "Cannot write plot.svg: File too large" err
cmp plot.svg before.svg
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
