#!/usr/bin/env bash
# Installs what is missing, builds, and runs the verified bandwidth sweep of the main collectives: ranks as threads, and
# as processes where mpirun is found. Prints the tables; leaves JSON and plots in build/sweep/.
#   scripts/sweep.sh [--ranks N] [options of `strait perf`]
#   scripts/sweep.sh                         2 to 8 ranks, as the machine has cores; 1 KB to 64 MB, about a minute
#   scripts/sweep.sh --ranks 4 -b 8 -e 1G -d bfloat16
set -euo pipefail

ranks=
if [[ "${1:-}" == --help ]]; then sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 0; fi
if [[ "${1:-}" == --ranks ]]; then ranks="${2:?--ranks needs a number}" && shift 2; fi

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export CCACHE_NOHASHDIR=1
"$root/scripts/setup.sh"
mkdir -p "$root/build"
cmake -S "$root" --preset cpu >"$root/build/cpu.log" || { cat "$root/build/cpu.log" && exit 1; }
cmake --build "$root/build/cpu" --target strait_command

strait="$root/build/cpu/bin/strait"
out="$root/build/sweep"
cores="$(nproc)"
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

for collective in all-reduce all-gather reduce-scatter all-to-all; do
  sweep "$collective-threads" "$strait" perf "$collective" -t "$ranks"
  if command -v mpirun >/dev/null; then
    # Ranks bound to their core where there are enough; Open MPI refuses more ranks than cores, and root, unless told.
    sweep "$collective-processes" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
      mpirun -np "$ranks" --oversubscribe "$strait" perf "$collective"
  fi
done
command -v mpirun >/dev/null || echo "sweep: no mpirun here: ranks were threads only"
echo "sweep: JSON and plots are in $out"
