/// The quantisation kernels for AVX2 with F16C.
#define STRAIT_VECTOR_BYTES 32
#define STRAIT_QUANTIZE_TABLE avx2_quantize_kernels
#include "executor/host/quantize_kernels.inl"
