#!/bin/sh
# self_contained.sh <nm> <objects...>: the kernels' objects (of AVX2 and AVX-512) define no function that other
# objects may define too. The linker would keep one copy for the whole program, perhaps the one that only newer
# processors can run.
nm=$1
shift
status=0
for object in "$@"; do
  case $object in
    *reduce_avx* | *quantize_avx*) ;;
    *) continue ;;
  esac
  if "$nm" -C "$object" | grep -E ' [WVu] '; then
    echo "$object: the symbols above must have internal linkage or be inlined always"
    status=1
  fi
done
exit $status
