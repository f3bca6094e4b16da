#!/usr/bin/env bash
# Installs into an empty folder, moves it, and builds and runs a small program against it: by find_package and by
# pkg-config.
#   test_install.sh <build folder> <C compiler> <C++ compiler>
set -euo pipefail

build="$1" cc="$2" cxx="$3"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# DESTDIR of a packager must not leak in.
env -u DESTDIR cmake --install "$build" --prefix "$work/first" >"$work/install.log"
# Nothing may remember where it was installed.
mv "$work/first" "$work/prefix"
prefix="$work/prefix"

for file in bin/strait include/strait/strait.h include/strait/strait.hpp include/strait/mpi.h lib/libstrait.so.0 \
  lib/pkgconfig/strait.pc lib/cmake/Strait/StraitConfig.cmake lib/cmake/Strait/StraitConfigVersion.cmake \
  share/doc/Strait/LICENSE share/doc/Strait/CONTRIBUTING.md share/doc/Strait/docs/user-guide.md \
  share/doc/Strait/examples/pytorch/train.py; do
  [[ -e "$prefix/$file" ]] || { echo "not installed: $file" && exit 1; }
done

# Only the headers, the library and the command: no internals.
if find "$prefix" -name '*.a' | grep . || grep -rIl "$here\|$build" "$prefix"; then
  echo "the files above must not be installed, or name folders of the build"
  exit 1
fi

# The pages hold together without the sources; what they say otherwise is as it was.
python3 -B "$here/check_links.py" "$here/../.." "$prefix/share/doc/Strait"
grep -qF "](../../../../include/strait/strait.h" "$prefix"/share/doc/Strait/docs/*.md

"$prefix/bin/strait" version

cmake -G Ninja -S "$here/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_CXX_COMPILER="$cxx" >"$work/configure.log" || { cat "$work/configure.log" && exit 1; }
cmake --build "$work/build"
"$work/build/consumer_c"
"$work/build/consumer_cpp"

export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
read -ra flags < <(pkg-config --cflags --libs strait)
[[ "$(pkg-config --modversion strait)" == 0.1.* ]]
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror "$here/consumer/consumer.c" -o "$work/by_pkg_config" "${flags[@]}" -pthread
LD_LIBRARY_PATH="$prefix/lib" "$work/by_pkg_config"
"$cc" "$prefix/share/doc/Strait/examples/all_reduce_threads.c" -o "$work/example" "${flags[@]}" -pthread
LD_LIBRARY_PATH="$prefix/lib" "$work/example"

# A request for another version is refused, and for no other reason.
cp -r "$here/consumer" "$work/other"
sed -i 's/find_package(Strait 0.1 /find_package(Strait 0.2 /' "$work/other/CMakeLists.txt"
if cmake -G Ninja -S "$work/other" -B "$work/other-build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/other.log" 2>&1; then
  echo "find_package(Strait 0.2) accepted version $(pkg-config --modversion strait)" && exit 1
fi
grep -q 'requested version "0.2"' "$work/other.log" || { cat "$work/other.log" && exit 1; }
