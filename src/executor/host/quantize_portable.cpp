/// The quantisation kernels for the instruction set that the compiler targets by default.
#define STRAIT_VECTOR_BYTES 16
#define STRAIT_QUANTIZE_TABLE portable_quantize_kernels
#include "executor/host/quantize_kernels.inl"
