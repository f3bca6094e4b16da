/// The quantisation kernels for AVX-512 F, BW, DQ and VL.
#define STRAIT_VECTOR_BYTES 64
#define STRAIT_QUANTIZE_TABLE avx512_quantize_kernels
#include "executor/host/quantize_kernels.inl"
