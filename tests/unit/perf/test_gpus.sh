#!/usr/bin/env bash
# What `strait perf -g` says where it cannot measure GPUs, with stand-ins for the driver: a message with the cause and the
# remedy, exit code 1, and no table.
#   test_gpus.sh <strait> <fake driver with two GPUs> <fake driver without> <1 if built with CUDA, else 0>
set -euo pipefail
strait="$1" two_gpus="$2" no_gpu="$3" has_cuda="$4"
folder="$(mktemp -d)"
trap 'rm -r "$folder"' EXIT

# refuses <driver> <expected text> <arguments...>
refuses() {
  local driver="$1" text="$2" code=0
  shift 2
  ln -sf "$driver" "$folder/libcuda.so.1"
  LD_LIBRARY_PATH="$folder" "$strait" perf all-reduce -b 8 -e 8 "$@" >"$folder/out" 2>"$folder/err" || code=$?
  if [[ "$code" != 1 ]] || ! grep -qF "$text" "$folder/err" || grep -q "busbw" "$folder/out"; then
    echo "strait perf all-reduce $*: exit code $code, expected 1 and '$text'; said:"
    cat "$folder/out" "$folder/err"
    exit 1
  fi
}

: >"$folder/broken"
refuses "$folder/broken" "the CUDA driver cannot be loaded" -t 2 -g 1
refuses "$folder/broken" "Host ranks need none: -g 0" -t 2 -g 1
refuses "$no_gpu" "the CUDA driver sees no GPU. Look at CUDA_VISIBLE_DEVICES" -t 2 -g 1
refuses "$two_gpus" "3 GPU ranks were asked for in this process, and it sees 2 GPUs" -t 3 -g 1
refuses "$two_gpus" "or have ranks share GPUs with STRAIT_SHARE_GPUS=1" -t 3 -g 1
refuses "$two_gpus" "4 GPU ranks were asked for in this process, and it sees 2 GPUs" -t 2 -g 2
if [[ "$has_cuda" == 0 ]]; then
  refuses "$two_gpus" "this build has no GPU data path" -t 2 -g 1
  refuses "$two_gpus" "this build has no GPU data path" -g 2
  [[ "$(grep -c "no GPU data path" "$folder/err")" == 1 ]] || { echo "each rank says it:" && cat "$folder/err" && exit 1; }
fi
# The driver does not matter to host ranks.
LD_LIBRARY_PATH="$folder" "$strait" perf all-reduce -b 8 -e 8 -t 2 >"$folder/out"
grep -q "host memory" "$folder/out"
