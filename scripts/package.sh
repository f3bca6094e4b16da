#!/usr/bin/env bash
# Installs what is missing, builds, and makes packages that install without a compiler, by apt or by tar: build once, on a
# machine with the distribution of the others (and nvcc, if they have GPUs), and install everywhere.
#   scripts/package.sh        leaves strait_<version>_<architecture>.deb and a .tar.gz in build/release/packages/
set -euo pipefail

if [[ "${1:-}" == --help ]]; then sed -n '2,4s/^# \{0,1\}//p' "$0" && exit 0; fi
if [[ $# -gt 0 ]]; then echo "package: it takes no arguments, and there are: $*" >&2 && exit 2; fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
"$root/scripts/setup.sh"
if ! command -v dpkg-shlibdeps >/dev/null; then
  echo "package: dpkg-shlibdeps is missing, which says what the package depends on. Run: apt-get install dpkg-dev" >&2
  exit 1
fi
mkdir -p "$root/build"
cmake -S "$root" --preset release
cmake --build "$root/build/release"
cpack --config "$root/build/release/CPackConfig.cmake" -B "$root/build/release/packages"
rm -r "$root/build/release/packages/_CPack_Packages"
echo "package: install it by: apt install $(ls "$root"/build/release/packages/*.deb)"
