#!/usr/bin/env bash
# Installs what is missing, builds a preset and runs its tests. Where nvcc is found, the CUDA parts are compiled as well.
#   scripts/test.sh [--preset cpu|cuda|asan|tsan] [arguments of ctest]
#   scripts/test.sh                       everything
#   scripts/test.sh --preset tsan -L unit the tests with the label `unit` under ThreadSanitizer
set -euo pipefail

preset=cpu
while [[ $# -gt 0 ]]; do
  case "$1" in
    --preset) preset="${2:?--preset needs a name}" && shift 2 ;;
    --preset=*) preset="${1#*=}" && shift ;;
    --help) sed -n '2,5s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) break ;;
  esac
done

arguments=("$@")
# Relative paths in ctest's arguments are relative to here: go nowhere, name everything absolutely.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# Debug information names the build folder; without this, ccache could not share objects between presets.
export CCACHE_NOHASHDIR=1

"$root/scripts/setup.sh"
# build <preset>
build() {
  cmake -S "$root" --preset "$1" >"$root/build/$1.log" || { cat "$root/build/$1.log" && return 1; }
  cmake --build "$root/build/$1"
}
mkdir -p "$root/build"
build "$preset"
ctest --test-dir "$root/build/$preset" --output-on-failure --no-tests=error --parallel "$(nproc)" "${arguments[@]}"

if [[ "$preset" == cpu ]]; then
  if [[ -n "$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)" ]]; then
    build cuda
    echo "test: the CUDA parts compile; run their tests on a machine with GPUs: scripts/test.sh --preset cuda"
  else
    echo "test: no nvcc here: the CUDA parts were not compiled"
  fi
fi
