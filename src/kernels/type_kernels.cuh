#pragma once

#include "kernels/exchange.cuh"
#include "kernels/kernels.hpp"
#include "kernels/two_hop.cuh"

#define STRAIT_TYPE_KERNELS(type)                                                     \
  template <>                                                                         \
  TypeKernels kernels_of<DataType::type>() {                                          \
    return {{reinterpret_cast<const void*>(&exchange_reduce<DataType::type, true>),   \
             reinterpret_cast<const void*>(&exchange_reduce<DataType::type, false>)}, \
            {reinterpret_cast<const void*>(&two_hop_reduce<DataType::type, true>),    \
             reinterpret_cast<const void*>(&two_hop_reduce<DataType::type, false>)}}; \
  }
