/// The reduction kernels for AVX-512 F, BW, DQ and VL.
#define STRAIT_VECTOR_BYTES 64
#define STRAIT_KERNEL_TABLE avx512_kernels
#include "executor/host/reduce_kernels.inl"
