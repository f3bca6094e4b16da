#!/usr/bin/env bash
# `strait perf -g` from the options to the table, on GPUs that are none: buffers on the GPU, copies of the host, checks;
# and `strait doctor --deep` on them.
#   test_fake_gpus.sh <strait> <fake_gpus>
set -euo pipefail
strait="$1" fake="$2"
folder="$(mktemp -d)"
trap 'rm -r "$folder"' EXIT
export XDG_CACHE_HOME="$folder/cache"
ln -s "$fake" "$folder/libcuda.so.1"

fail() { echo "$1; said:" && cat "$folder/out" "$folder/err" && exit 1; }
run() { LD_LIBRARY_PATH="$folder" LD_PRELOAD="$fake" "$strait" perf "$@" >"$folder/out" 2>"$folder/err"; }

blocking=0
for collective in all-reduce all-gather reduce-scatter all-to-all all-to-all-v broadcast reduce gather scatter send-recv \
  barrier; do
  run "$collective" -t 2 -g 1 -b 24 -e 4000 -f 13 -n 3 -c 2 -z "$blocking" || fail "$collective failed"
  grep -q "Out of bounds values : 0 OK" "$folder/out" || fail "$collective: no verdict"
  grep -q "Rank  1 .* device  1 \[0000:42:00.0\] Fake 1" "$folder/out" || fail "$collective: the GPUs are not named"
  grep -q "fake GPUs: 0 held" "$folder/err" || fail "$collective: something is left on the GPUs"
  blocking=$(((blocking + 1) % 4))
done

run all-reduce -g 2 -b 8 -e 8 --json "$folder/json" || fail "-g 2 failed"
grep -q "^# -g 2: each GPU has a thread of its own, 2 in a process" "$folder/out" || fail "-g 2 is not explained"
grep -q '"name": "Fake 1"' "$folder/json" || fail "the JSON does not name the GPUs"

run all-gather -t 2 -g 1 -b 8 -e 1G -f 4194304 -n 1 -w 0 || fail "a size beyond the GPUs' memory failed"
grep -q "^# Reducing maxBytes to 4194304 due to memory limitation" "$folder/out" || fail "sizes are not limited"

if FAKE_GPUS_LOSE=1 run all-reduce -t 2 -g 1 -b 1K -e 1K; then fail "lost copies are not noticed"; fi
grep -q "Out of bounds values : [1-9][0-9]* FAILED" "$folder/out" || fail "lost copies are not counted"

# `strait doctor --deep` puts them under load. On a busy machine it may find one of them slow, and never wrong.
deep() { LD_LIBRARY_PATH="$folder" LD_PRELOAD="$fake" "$strait" doctor --deep >"$folder/out" 2>"$folder/err"; }
deep || true
grep -q -e "200 all-reduces on 2 GPUs, verified" -e "GPU [01] (0000:4[12]:00.0) takes" "$folder/out" ||
  fail "doctor --deep does not put GPUs under load"
if grep -q "are wrong" "$folder/out"; then fail "doctor --deep finds wrong sums where there are none"; fi
grep -q "fake GPUs: 0 held" "$folder/err" || fail "doctor --deep leaves something on the GPUs"
code=0
FAKE_GPUS_LOSE=1 deep || code=$?
grep -q "[1-9][0-9]* elements of sums on GPUs are wrong" "$folder/out" || fail "doctor --deep does not notice lost copies"
[[ $code == 2 ]] || fail "doctor --deep: exit code $code, expected 2"
