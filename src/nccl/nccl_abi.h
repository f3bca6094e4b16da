/* The NCCL ABI that this project's libnccl.so.2 implements, written from documented facts. Plain C. */
#ifndef STRAIT_NCCL_ABI_H_
#define STRAIT_NCCL_ABI_H_

#include "nccl/nccl_types.h"
/* Included second because the functions use the types. */
#include "nccl/nccl_functions.h"

#endif
