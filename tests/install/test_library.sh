#!/usr/bin/env bash
# The shared library exports Strait's interface and nothing else, and needs nothing that a bare system lacks.
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
exit $status
