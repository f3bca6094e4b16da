#pragma once

#include "kernels/add.cuh"
#include "kernels/aggregate.cuh"
#include "kernels/bulk_exchange.cuh"
#include "kernels/bulk_two_hop.cuh"
#include "kernels/exchange.cuh"
#include "kernels/kernels.hpp"
#include "kernels/piped_kernels.cuh"
#include "kernels/prompt.cuh"
#include "kernels/two_hop.cuh"

namespace strait::kernels {
template <DataType type>
TypeKernels::Pair piped_pair() {
  if constexpr (has_pair_sum<type>)
    return {reinterpret_cast<const void*>(&piped_exchange_sum<type>),
            reinterpret_cast<const void*>(&piped_two_hop_sum<type>)};
  else
    return {nullptr, nullptr};
}
}  // namespace strait::kernels

#define STRAIT_KERNEL_PAIR(wire, type, sum_only)                                       \
  {                                                                                    \
    reinterpret_cast<const void*>(&exchange_reduce<wire, DataType::type, sum_only>),   \
        reinterpret_cast<const void*>(&two_hop_reduce<wire, DataType::type, sum_only>) \
  }
#define STRAIT_TYPE_KERNELS(type)                                                                     \
  template <>                                                                                         \
  TypeKernels kernels_of<DataType::type>() {                                                          \
    return {{STRAIT_KERNEL_PAIR(Lines, type, true), STRAIT_KERNEL_PAIR(Lines, type, false)},          \
            STRAIT_KERNEL_PAIR(Packets, type, false),                                                 \
            {reinterpret_cast<const void*>(&bulk_exchange_reduce<DataType::type>),                    \
             reinterpret_cast<const void*>(&bulk_two_hop_reduce<DataType::type>)},                    \
            {reinterpret_cast<const void*>(&prompt_exchange_reduce<Lines, DataType::type, true>),     \
             reinterpret_cast<const void*>(&prompt_exchange_reduce<Packets, DataType::type, false>)}, \
            {reinterpret_cast<const void*>(&aggregate_reduce<Lines, DataType::type>),                 \
             reinterpret_cast<const void*>(&aggregate_reduce<Packets, DataType::type>),               \
             reinterpret_cast<const void*>(&aggregate_reduce<Bulk, DataType::type>)},                 \
            {reinterpret_cast<const void*>(&add_chunks<DataType::type, true>),                        \
             reinterpret_cast<const void*>(&add_chunks<DataType::type, false>)},                      \
            piped_pair<DataType::type>()};                                                            \
  }
