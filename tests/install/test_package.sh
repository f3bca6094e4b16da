#!/usr/bin/env bash
# The Debian package holds what `cmake --install` leaves, where loader, pkg-config and CMake look, and runs as unpacked.
#   test_package.sh <build folder>
set -euo pipefail

build="$1"
command -v dpkg-shlibdeps >/dev/null || { echo "skipped: there is no dpkg-shlibdeps (dpkg-dev) here" && exit 77; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
package="$(echo "$work"/strait_0.1.*_*.deb)"
dpkg-deb --extract "$package" "$work/root"
for file in bin/strait include/strait/strait.h lib/libstrait.so.0 lib/strait/nccl/libnccl.so.2 lib/pkgconfig/strait.pc \
  lib/cmake/Strait/StraitConfig.cmake share/doc/Strait/LICENSE; do
  [[ -e "$work/root/usr/$file" ]] || { echo "not in the package: $file" && exit 1; }
done
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python3 -B "$here/check_links.py" "$here/../.." "$work/root/usr/share/doc/Strait"
depends="$(dpkg-deb --field "$package" Depends)"
[[ "$depends" == *libpugixml1* && "$depends" == *libstdc++6* ]] || { echo "it depends on: $depends" && exit 1; }
"$work/root/usr/bin/strait" version
"$work/root/usr/bin/strait" run -- true
