#!/usr/bin/env bash
# The shared library exports Strait's interface and nothing else, needs nothing that a bare system lacks, and is small.
#   test_library.sh <libstrait.so>
set -euo pipefail

library="$1"
status=0

soname="$(readelf --dynamic --wide "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')"
[[ "$soname" == libstrait.so.0 ]] || { echo "the SONAME is '$soname'" && status=1; }

# All but the absolute symbol that names the version node of the map.
mapfile -t names < <(nm --dynamic --defined-only "$library" | awk '$(NF-1) != "A" {print $NF}')
[[ ${#names[@]} -gt 20 ]] || { echo "only ${#names[@]} exported names" && status=1; }
for name in "${names[@]}"; do
  [[ "$name" =~ ^strait[A-Z] ]] || { echo "exports $name" && status=1; }
done

# glibc's own, and libsodium, whose archive no distribution builds for use in shared libraries.
while read -r needed; do
  case "$needed" in
    libc.so.6 | libm.so.6 | libdl.so.2 | librt.so.1 | libpthread.so.0 | ld-linux-*.so.* | libsodium.so.*) ;;
    *) echo "needs $needed" && status=1 ;;
  esac
done < <(readelf --dynamic --wide "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')

# Small, and loaded before anybody notices: as packaged, without what only debuggers read; the best of five, for the machine
# may be busy.
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
strip -o "$work/stripped.so" "$library"
bytes="$(stat --format %s "$work/stripped.so")"
((bytes < 40000000)) || { echo "has $bytes bytes, not less than 40 MB" && status=1; }
load_ms="$(for _ in 1 2 3 4 5; do
  python3 -c 'import ctypes, sys, time
start = time.perf_counter()
ctypes.CDLL(sys.argv[1])
print(round((time.perf_counter() - start) * 1000, 1))' "$work/stripped.so"
done | sort -n | head -1)"
awk "BEGIN {exit !($load_ms < 100)}" || { echo "takes $load_ms ms to load, not less than 100" && status=1; }
echo "$bytes bytes, loaded in $load_ms ms"
exit $status
