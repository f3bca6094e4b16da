#!/usr/bin/env bash
# Writes the predictions that docs/simulation.md shows: perf/results/sim_*.json and docs/images/sim_*.svg.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cmake -S "$root" --preset cpu >/dev/null
cmake --build "$root/build/cpu" --target strait_command
strait="$root/build/cpu/bin/strait"
results="$root/perf/results"

"$strait" sim all-reduce --topology 10x-rtx3090 --wire int8 --ranks 2..10 -b 1K -e 256M -f 2 --against ring \
    --json "$results/sim_10x_rtx3090.json" --plot "$root/docs/images/sim_10x_rtx3090.svg"
"$strait" sim all-reduce --topology 10x-rtx3090-bridged --wire int8 --ranks 2..10 -b 1K -e 256M -f 2 --against ring \
    --json "$results/sim_10x_rtx3090_bridged.json" --plot "$root/docs/images/sim_10x_rtx3090_bridged.svg"
"$strait" sim all-reduce --topology 10x-rtx3090 --ranks 2..10 --against ring --train \
    --parameters 350M --bytes-per-parameter 4 --compute-ms 600 --buckets 10 --samples 8 \
    --json "$results/sim_10x_rtx3090_training.json" --plot "$root/docs/images/sim_10x_rtx3090_training.svg"
"$strait" sim all-reduce --topology 4x-h200-no-p2p --type bfloat16 --ranks 4 --against ring -b 16K -e 256M -f 4 \
    --json "$results/sim_4x_h200_no_p2p.json"
# What examples/pytorch/train.py --model 300m does, with the time that it takes without communication.
"$strait" sim all-reduce --topology 4x-h200-no-p2p --ranks 2..4 --against ring --train \
    --parameters 304M --bytes-per-parameter 4 --compute-ms 15.14 --buckets 48 --samples 8 \
    --json "$results/sim_4x_h200_no_p2p_training.json" --plot "$root/docs/images/sim_4x_h200_no_p2p_training.svg"
for size in 1K 256M; do
    "$strait" explain all-reduce "$size" --topology 4x-h200 --type bfloat16 --json >"$results/sim_4x_h200_$size.json"
done
