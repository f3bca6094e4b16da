#!/usr/bin/env bash
# libnccl.so.2 exports the whole ABI, with its pnccl twins at the same addresses, unversioned, and nothing else; it
# needs nothing but glibc, and stays loaded after dlclose(), since it has threads of its own.
#   test_surface.sh <libnccl.so.2> <symbols.txt> [a libnccl.so.2 of NVIDIA's, whose names ours must have]
set -euo pipefail

library="$1" list="$2" theirs="${3:-}"
status=0
complain() { echo "$1" && status=1; }

[[ "$(readelf --dynamic --wide "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')" == libnccl.so.2 ]] ||
  complain "the SONAME is not libnccl.so.2"
readelf --dynamic --wide "$library" | grep -q 'FLAGS_1.*NODELETE' || complain "dlclose() would unload it"

exported="$(nm --dynamic --defined-only "$library")"
names="$(awk '{print $3}' <<<"$exported" | sort)"
wanted="$(sed 'p; s/^/p/' "$list" | sort)"
diff <(echo "$wanted") <(echo "$names") || complain "exported names differ from $list (with pnccl twins)"
awk '$2 != "T" {print; bad = 1} END {exit bad}' <<<"$exported" || complain "not all are functions"
grep '@' <<<"$names" && complain "names carry versions"

while read -r name; do
  addresses="$(awk -v a="$name" -v b="p$name" '$3 == a || $3 == b {print $1}' <<<"$exported" | sort -u | wc -l)"
  [[ "$addresses" == 1 ]] || complain "$name and p$name are not the same function"
done <"$list"

while read -r needed; do
  case "$needed" in
    libc.so.6 | libm.so.6 | libdl.so.2 | librt.so.1 | libpthread.so.0 | ld-linux-*.so.*) ;;
    *) complain "needs $needed" ;;
  esac
done < <(readelf --dynamic --wide "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')

if [[ -n "$theirs" ]]; then
  # What NVIDIA exports beyond its headers is nobody's to call.
  missing="$(comm -13 <(echo "$names") <(nm --dynamic --defined-only "$theirs" | awk '{print $3}' | sort) |
    grep -E '^p?nccl[A-Z]' | grep -v 'ncclResetDebugInitInternal$' || true)"
  [[ -z "$missing" ]] || complain "NVIDIA's $theirs has, and ours has not: $missing"
fi
exit $status
