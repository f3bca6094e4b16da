#!/usr/bin/env bash
# `strait perf -g` from the options to the table, on GPUs that are none: buffers on the GPU, copies of the host, checks;
# and `strait doctor --deep` on them.
#   test_fake_gpus.sh <strait> <fake_gpus> <libnccl.so.2 that takes host ranks>
set -euo pipefail
strait="$1" fake="$2" nccl="$3"
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
grep -q "^# nThread 2 nGpus 1 minBytes 8 maxBytes 4194304 step" "$folder/out" || fail "the header has sizes that are not measured"

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
# Graphs: a launch does what was recorded, and a launch that does nothing is noticed.
run all-reduce -t 2 -g 1 -b 1K -e 4K -f 2 -n 3 -G 2 --json "$folder/json" || fail "graphs failed"
grep -q "^# CUDA graph of 3 iterations, launched 2 times" "$folder/out" || fail "graphs are not mentioned"
grep -q "Out of bounds values : 0 OK" "$folder/out" || fail "graphs: no verdict"
grep -q "fake GPUs: 0 held" "$folder/err" || fail "graphs are left on the GPUs"
grep -q '"graph_launches": 2' "$folder/json" || fail "the JSON does not mention graphs"
if FAKE_GPUS_FORGET=1 run all-reduce -t 2 -g 1 -b 1K -e 1K -G 1; then fail "graphs that do nothing are not noticed"; fi

# What the links allow: measured first, then beside every size.
run all-reduce -t 2 -g 1 -b 1K -e 4K -f 2 -n 3 --floors --json "$folder/json" || fail "--floors failed"
grep -q "^# Links to the host, .* GB/s up, .* down, .* each while both are busy" "$folder/out" || fail "no rates of links"
grep -q "times$" "$folder/out" || fail "no column for the floor"
python3 - "$folder/json" <<'PY' || fail "the JSON has no floors"
import json, math, sys
report = json.load(open(sys.argv[1]))
links = report["links"]
assert all(links[key] > 0 for key in ("up_gbps", "down_gbps", "duplex_gbps")), links
for row in report["results"]:
    floor = row["floor"]
    slowest = min(links["up_gbps"], links["down_gbps"])
    assert math.isclose(floor["time_us"], row["bytes"] / slowest / 1e3, rel_tol=1e-6), (floor, links)
    assert floor["duplex_time_us"] >= floor["time_us"] and floor["binding"] in ("up", "down"), floor
assert len(report["results"]) == 3
PY
grep -q "fake GPUs: 0 held" "$folder/err" || fail "--floors leaves something on the GPUs"
run broadcast -t 2 -g 1 -b 1K -e 1K -n 3 --floors || fail "--floors of a broadcast failed"
grep -q "N/A  *N/A$" "$folder/out" || fail "a broadcast has a floor"
FAKE_GPUS_P2P=1 run all-gather -t 2 -g 1 -b 1K -e 4K -f 2 -n 3 --floors --json "$folder/json" || fail "P2P: --floors failed"
grep -q "^# Copies to all peers, .* GB/s$" "$folder/out" || fail "P2P: no rate of copies"
grep -q "times$" "$folder/out" || fail "P2P: no column for the floor"
python3 - "$folder/json" <<'PY' || fail "P2P: the JSON has no floors"
import json, math, sys
report = json.load(open(sys.argv[1]))
rate = report["links"]["peers_gbps"]
for row in report["results"]:
    assert math.isclose(row["floor"]["time_us"], row["bytes"] / 2 / rate / 1e3, rel_tol=1e-6), (row, rate)
    assert row["floor"]["binding"] == "peers", row
assert len(report["results"]) == 3
PY
grep -q "fake GPUs: 0 held" "$folder/err" || fail "P2P: --floors leaves something on the GPUs"
if FAKE_GPUS_P2P=0 run all-gather -t 2 -g 1 -b 1K -e 1K --floors; then fail "P2P that is none is not noticed"; fi
grep -q "no P2P from GPU [01] to GPU [01]" "$folder/err" || fail "P2P that is none is not named"
run all-reduce -t 1 -g 1 -b 1K -e 1K --floors || fail "--floors of one rank failed"
grep -q "^# No floors: one rank copies to nobody" "$folder/out" || fail "one rank has floors"
if run all-reduce -t 2 --floors; then fail "host ranks have floors"; fi
grep -q "Measure them with -g 1" "$folder/err" || fail "--floors of host ranks is not refused"

# Calls that would take too long are fewer, on all ranks alike; at least one.
calls_of() { python3 -c 'import json, sys; print(*(row["out_of_place"]["calls"] for row in json.load(open(sys.argv[1]))["results"]))' "$folder/json"; }
fewer_of_long() { [[ "$of_short" -gt "$of_long" && "$of_long" -ge 1 && "$of_long" -lt 3000 ]]; }
for _ in 1 2 3; do  # on a busy machine a first short call may take as long as a long one
  run all-reduce -t 2 -b 8 -e 32M -f 4194304 -n 3000 -w 0 --budget-ms 50 --json "$folder/json" || fail "--budget-ms failed"
  read -r of_short of_long <<<"$(calls_of)"
  if fewer_of_long; then break; fi
done
fewer_of_long || fail "--budget-ms 50: $of_short and $of_long calls"
grep -q "^# Fewer iterations of a size, place and library that would take longer than 50 ms$" "$folder/out" || fail "--budget-ms is not in the header"
run all-reduce -t 2 -g 1 -b 8 -e 8 -n 3 -G 7 --budget-ms 0.0001 --json "$folder/json" || fail "--budget-ms of graphs failed"
[[ "$(calls_of)" == 3 ]] || fail "--budget-ms of graphs: $(calls_of) calls"
run all-reduce -t 2 -g 1 -b 8 -e 8 -n 3 -G 2 --budget-ms 60000 --json "$folder/json" || fail "a large --budget-ms failed"
[[ "$(calls_of)" == 6 ]] || fail "a large --budget-ms: $(calls_of) calls"

# NCCL's setting holds for Strait, too, but for one of its own.
p2p() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["provenance"]["environment"].get("STRAIT_P2P"))' "$folder/json"; }
NCCL_P2P_DISABLE=1 run all-reduce -t 2 -g 1 -b 8 -e 8 --json "$folder/json" || fail "NCCL_P2P_DISABLE=1 failed"
[[ "$(p2p)" == off ]] || fail "NCCL_P2P_DISABLE=1 is not heeded"
NCCL_P2P_DISABLE=0 run all-reduce -t 2 -g 1 -b 8 -e 8 --json "$folder/json" || fail "NCCL_P2P_DISABLE=0 failed"
[[ "$(p2p)" == None ]] || fail "NCCL_P2P_DISABLE=0 switches P2P off"
NCCL_P2P_DISABLE=1 STRAIT_P2P=auto run all-reduce -t 2 -g 1 -b 8 -e 8 --json "$folder/json" || fail "STRAIT_P2P=auto failed"
[[ "$(p2p)" == auto ]] || fail "NCCL_P2P_DISABLE=1 replaces STRAIT_P2P"

# A baseline in the same process: Strait's own, of host ranks.
export STRAIT_NCCL_HOST_RANKS=1
for collective in all-reduce all-gather reduce-scatter all-to-all all-to-all-v broadcast reduce gather scatter send-recv; do
  run "$collective" -t 2 -g 1 -b 24 -e 4000 -f 13 -n 3 -d bfloat16 --turns 3 --extra-elements 3 --offset-bytes 6 \
    --baseline "$nccl" --json "$folder/json" --plot "$folder/plot.svg" || fail "$collective beside a baseline failed"
  grep -q "^# Baseline: NCCL 2.28.9 of $nccl, in 3 turns" "$folder/out" || fail "$collective: no baseline in the header"
  grep -q "Out of bounds values : 0 OK" "$folder/out" || fail "$collective: no verdict beside a baseline"
  grep -q "$collective, 2 ranks beside NCCL 2.28.9" "$folder/plot.svg" || fail "$collective: the drawing lacks the baseline"
  python3 - "$folder/json" <<'PY' || fail "$collective: the JSON lacks what it should say"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["baseline"]["version"] == 22809, report["baseline"]
assert report["provenance"]["environment"]["STRAIT_NCCL_HOST_RANKS"] == "1"
assert report["summary"]["mean_ratio"] > 0
assert report["settings"]["offset_bytes"] == 6
for row in report["results"]:
    assert row["ratio"]["out_of_place"] > 0 and row["baseline"]["out_of_place"]["wrong"] == 0, row
    assert row["count"] % 8 == 3 or report["settings"]["collective"] not in ("all-gather", "scatter"), row
PY
  grep -q "fake GPUs: 0 held" "$folder/err" || fail "$collective: the baseline leaves something on the GPUs"
done
for registration in 1 2; do
  run all-gather -t 2 -g 1 -b 1K -e 1K -R "$registration" --baseline "$nccl" --json "$folder/json" ||
    fail "-R $registration failed"
  grep -q "Out of bounds values : 0 OK" "$folder/out" || fail "-R $registration: no verdict"
  grep -q "fake GPUs: 0 held" "$folder/err" || fail "-R $registration leaves memory on the GPUs"
  grep -q '"registered_memory": true' "$folder/json" || fail "the JSON does not mention -R $registration"
done
# Graphs of the baseline's calls do nothing here: its column says so, and it is not Strait's failure.
run all-reduce -t 2 -g 1 -b 1K -e 1K -G 1 --baseline "$nccl" || fail "a wrong baseline is taken for Strait's failure"
grep -q "wrong elements of the baseline" "$folder/err" || fail "a wrong baseline is not noticed"
run all-reduce -t 2 -g 1 -b 1K -e 4K -f 2 --check-limit 1K || fail "--check-limit failed"
grep -q "^ *2048 .* N/A .* N/A " "$folder/out" || fail "--check-limit: what is larger should not be checked"
if run all-reduce -t 2 -g 1 -b 8 -e 8 --baseline "$folder/none.so"; then fail "a missing baseline is not noticed"; fi
grep -q "cannot load the baseline" "$folder/err" || fail "a missing baseline is not named"
[[ "$(grep -c "^strait perf: " "$folder/err")" == 1 ]] || fail "a missing baseline is told by each rank"
if run all-reduce -t 2 -g 1 -b 8 -e 8 --baseline "$fake"; then fail "a baseline that is none is not noticed"; fi
grep -q "lacks ncclGetErrorString" "$folder/err" || fail "a baseline that is none is not named"
