#!/usr/bin/env bash
# What `strait perf` says under mpirun of something wrong: what all ranks find, rank 0 says alone; what one rank alone
# finds, that rank says.
#   test_perf.sh <mpirun> <strait> <fake driver with two GPUs>
set -euo pipefail
mpirun="$1" strait="$2" two_gpus="$3"
folder="$(mktemp -d)"
trap 'rm -r "$folder"' EXIT
export XDG_CACHE_HOME="$folder/cache"

# told <status of strait> <times> <words> <command...>
told() {
  local wanted="$1" times="$2" words="$3" status=0
  shift 3
  timeout 30 "$mpirun" --allow-run-as-root --oversubscribe -np 3 "$@" >"$folder/out" 2>"$folder/err" || status=$?
  if [[ "$status" != "$wanted" || "$(grep -c "^strait perf: " "$folder/err")" != "$times" ]] ||
    ! grep -qF -- "$words" "$folder/err"; then
    echo "$*: status $status and this, not $wanted, and $times times \"$words\":"
    cat "$folder/out" "$folder/err"
    exit 1
  fi
}

told 2 1 "--root 100 is not a rank: there are 6" "$strait" perf broadcast -t 2 -r 100 -b 8 -e 8
told 2 1 "process 3 on $(hostname): --nthreads is 2 here, and 1 in process 0. Give all processes" \
  "$strait" perf all-reduce -b 8 -e 8 -t 1 : -np 1 "$strait" perf all-reduce -b 8 -e 8 -t 2
told 2 1 "collective is broadcast here, and all-reduce in process 0" \
  "$strait" perf all-reduce -b 8 -e 8 : -np 1 "$strait" perf broadcast -b 8 -e 8
told 1 1 "Cannot write /none/results.json" "$strait" perf all-reduce -b 8 -e 8 --json /none/results.json
: >"$folder/libcuda.so.1"
told 1 1 "the CUDA driver cannot be loaded" env LD_LIBRARY_PATH="$folder" "$strait" perf all-reduce -g 1 -b 8 -e 8
mkdir "$folder/good" && ln -s "$two_gpus" "$folder/good/libcuda.so.1"
# shellcheck disable=SC2016  # the ranks' own shells expand it
on_rank_2='[[ "$OMPI_COMM_WORLD_RANK" == 2 ]] || export LD_LIBRARY_PATH="$1/good"; exec "$2" perf all-reduce -g 1 -b 8 -e 8'
LD_LIBRARY_PATH="$folder" told 1 1 "the CUDA driver cannot be loaded" bash -c "$on_rank_2" _ "$folder" "$strait"
