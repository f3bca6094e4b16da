#!/usr/bin/env bash
# Installs what is missing, builds, and runs the verified bandwidth sweep of the main collectives: host ranks as threads,
# and as processes where mpirun is found; GPUs where there are nvcc and two of them or more, beside NCCL where the loader
# or python3 has it. Prints the tables; leaves JSON and plots in build/sweep/.
#   scripts/sweep.sh [--ranks N] [--baseline LIBNCCL|none] [options of `strait perf`]
#   scripts/sweep.sh                         2 to 8 host ranks, as the machine has cores; all GPUs, up to 16; 1 KB to
#                                            64 MB, about a minute after the build
#   scripts/sweep.sh --ranks 4 -b 8 -e 1G -d bfloat16
set -euo pipefail

ranks=
baseline=
if [[ "${1:-}" == --help ]]; then sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0; fi
while [[ "${1:-}" == --ranks || "${1:-}" == --baseline ]]; do
  if [[ "$1" == --ranks ]]; then ranks="${2:?--ranks needs a number}"; else baseline="${2:?--baseline needs a file, or none}"; fi
  shift 2
done
# Before anything is installed or built.
refuse() { echo "sweep: $1" >&2 && exit 2; }
if [[ -n "$ranks" ]] && ! [[ "$ranks" =~ ^[1-9][0-9]{0,3}$ && "$ranks" -le 1024 ]]; then
  refuse "--ranks $ranks: give a number from 1 to 1024"
fi
if [[ "$baseline" == */* && ! -f "$baseline" ]]; then  # a name alone is the loader's to find
  refuse "--baseline $baseline: there is no such file. Give a libnccl.so.2, or none"
fi

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/scripts/setup.sh"
# build <preset>
build() {
  cmake -S "$root" --preset "$1" >"$root/build/$1.log" || { cat "$root/build/$1.log" && return 1; }
  cmake --build "$root/build/$1" --target strait_command
}
mkdir -p "$root/build"
build cpu

strait="$root/build/cpu/bin/strait"
out="$root/build/sweep"
cores="$(nproc)"
asked="$ranks"
if [[ -z "$ranks" ]]; then ranks=$((cores < 2 ? 2 : cores > 8 ? 8 : cores)); fi

# default_option <short> <long> <value>: adds an option that the caller has not given.
options=("$@")
default_option() {
  local given
  for given in "${options[@]}"; do
    [[ "$given" != "$1"* && "$given" != "$2"* ]] || return 0
  done
  options+=("$1" "$3")
}
default_option -b --minbytes 1K
default_option -e --maxbytes 64M
[[ " $* " == *" -i "* || " $* " == *" --stepbytes"* ]] || default_option -f --stepfactor 4
mkdir -p "$out"

# sweep <name> <command...>: one table, one JSON file, one plot
sweep() {
  local name="$1"
  shift
  echo "== $name"
  "$@" "${options[@]}" --json "$out/$name.json" --plot "$out/$name.html"
  echo
}

collectives=(all-reduce all-gather reduce-scatter all-to-all)
for collective in "${collectives[@]}"; do
  sweep "$collective-threads" "$strait" perf "$collective" -t "$ranks"
  if command -v mpirun >/dev/null; then
    # Ranks bound to their core where there are enough; Open MPI refuses more ranks than cores, and root, unless told.
    sweep "$collective-processes" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
      mpirun -np "$ranks" --oversubscribe "$strait" perf "$collective"
  fi
done
command -v mpirun >/dev/null || echo "sweep: no mpirun here: host ranks were threads only"

# find_nccl: prints the path of the machine's NCCL: the loader's, or that of the Python package that PyTorch brings along.
find_nccl() {
  local path
  path="$(ldconfig -p 2>/dev/null | awk '/libnccl\.so\.2 / { print $NF; exit }')"
  [[ -n "$path" ]] || path="$(python3 -c '
import nvidia.nccl, os
print(os.path.join(list(nvidia.nccl.__path__)[0], "lib", "libnccl.so.2"))' 2>/dev/null || true)"
  [[ ! -f "$path" ]] || echo "$path"
}

# GPUs that the user lets programs see, or all.
if [[ -n "${CUDA_VISIBLE_DEVICES+set}" ]]; then
  gpus="$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c . || true)"
else
  gpus="$( (nvidia-smi -L 2>/dev/null || true) | grep -c '^GPU' || true)"
fi
gpus=$((gpus > 16 ? 16 : gpus))
if [[ -n "$asked" && "$asked" -lt "$gpus" ]]; then gpus="$asked"; fi
if ((gpus < 2)); then
  echo "sweep: there are no two GPUs here to measure"
elif [[ -z "$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)" ]]; then
  echo "sweep: no nvcc here: the $gpus GPUs were not measured. Install the CUDA toolkit (12.4 or later)"
else
  build cuda
  strait="$root/build/cuda/bin/strait"
  # What keeps the GPUs from being used is said by the program.
  if "$strait" perf barrier -t "$gpus" -g 1 -n 1 >/dev/null; then
    [[ -n "$baseline" ]] || baseline="$(find_nccl)"
    beside=()
    if [[ -n "$baseline" && "$baseline" != none ]]; then
      beside=(--baseline "$baseline")
      if ! "$strait" perf all-reduce -t "$gpus" -g 1 -b 8 -e 8 -n 1 "${beside[@]}" >/dev/null; then
        echo "sweep: $baseline is left out, for the reason above" && beside=()
      fi
    fi
    for collective in "${collectives[@]}"; do
      sweep "$collective-gpus" "$strait" perf "$collective" -t "$gpus" -g 1 "${beside[@]}"
    done
  else
    echo "sweep: GPU ranks do not start here, for the reason above: host ranks only"
  fi
fi
echo "sweep: JSON and plots are in $out"
