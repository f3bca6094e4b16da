/* The NCCL ABI, written from documented facts: what libnccl.so.2 of this project defines. Plain C. */
#ifndef STRAIT_NCCL_ABI_H_
#define STRAIT_NCCL_ABI_H_

#include "nccl/nccl_types.h"
/* The functions use the types. */
#include "nccl/nccl_functions.h"

#endif
