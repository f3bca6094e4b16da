#!/usr/bin/env bash
# Installs what is missing, builds a preset and runs its tests. Where nvcc is found, the CUDA parts are compiled as well.
#   scripts/test.sh [--preset cpu|cuda|asan|tsan] [--targets "NAME..."] [arguments of ctest]
#   scripts/test.sh                       everything
#   scripts/test.sh --preset tsan -L unit the tests with the label `unit` under ThreadSanitizer
#   --targets: builds only these, for tests that need no more
set -euo pipefail

preset=cpu
targets=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --preset) preset="${2:?--preset needs a name}" && shift 2 ;;
    --preset=*) preset="${1#*=}" && shift ;;
    --targets) read -r -a targets <<<"${2:?--targets needs names}" && shift 2 ;;
    --help) sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) break ;;
  esac
done

arguments=("$@")
# Relative paths in ctest's arguments are relative to here: go nowhere, name everything absolutely.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

# The address sanitizer is clang's, which builds it in half of the time.
if [[ "$preset" == asan ]]; then "$root/scripts/setup.sh" --dev; else "$root/scripts/setup.sh"; fi
# build <preset> [targets]
build() {
  cmake -S "$root" --preset "$1" >"$root/build/$1.log" || { cat "$root/build/$1.log" && return 1; }
  cmake --build "$root/build/$1" ${2:+--target "${@:2}"}
}
mkdir -p "$root/build"
build "$preset" "${targets[@]}"
ctest --test-dir "$root/build/$preset" --output-on-failure --no-tests=error --parallel "$(nproc)" "${arguments[@]}"

if [[ "$preset" == cpu ]]; then
  if [[ -n "$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)" ]]; then
    build cuda cuda_parts
    ctest --test-dir "$root/build/cuda" --output-on-failure --no-tests=error --tests-regex '^library_names_and_needs$'
    echo "test: the CUDA parts compile; run their tests on a machine with GPUs: scripts/test.sh --preset cuda"
  else
    echo "test: no nvcc here: the CUDA parts were not compiled"
  fi
fi
