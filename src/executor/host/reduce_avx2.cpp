/// The reduction kernels for AVX2 with F16C.
#define STRAIT_VECTOR_BYTES 32
#define STRAIT_KERNEL_TABLE avx2_kernels
#include "executor/host/reduce_kernels.inl"
