/// The reduction kernels for the instruction set that the compiler targets by default.
#define STRAIT_VECTOR_BYTES 16
#define STRAIT_KERNEL_TABLE portable_kernels
#include "executor/host/reduce_kernels.inl"
