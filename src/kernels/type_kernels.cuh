#pragma once

#include "kernels/add.cuh"
#include "kernels/bulk_exchange.cuh"
#include "kernels/bulk_two_hop.cuh"
#include "kernels/exchange.cuh"
#include "kernels/kernels.hpp"
#include "kernels/two_hop.cuh"

#define STRAIT_KERNEL_PAIR(wire, type, sum_only)                                       \
  {                                                                                    \
    reinterpret_cast<const void*>(&exchange_reduce<wire, DataType::type, sum_only>),   \
        reinterpret_cast<const void*>(&two_hop_reduce<wire, DataType::type, sum_only>) \
  }
#define STRAIT_TYPE_KERNELS(type)                                                            \
  template <>                                                                                \
  TypeKernels kernels_of<DataType::type>() {                                                 \
    return {{STRAIT_KERNEL_PAIR(Lines, type, true), STRAIT_KERNEL_PAIR(Lines, type, false)}, \
            STRAIT_KERNEL_PAIR(Packets, type, false),                                        \
            {reinterpret_cast<const void*>(&bulk_exchange_reduce<DataType::type>),           \
             reinterpret_cast<const void*>(&bulk_two_hop_reduce<DataType::type>)},           \
            {reinterpret_cast<const void*>(&add_chunks<DataType::type, true>),               \
             reinterpret_cast<const void*>(&add_chunks<DataType::type, false>)}};            \
  }
