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

/// The definition of kernels_of(), which is instantiated in one file for each KernelType.
namespace strait::kernels {

template <class... Arguments>
const void* address_of(void (*kernel)(Arguments...)) {
  return reinterpret_cast<const void*>(kernel);
}
template <class P, KernelType kind, bool sum_only>
TypeKernels::Pair flagged_pair() {
  return {address_of(&exchange_reduce<P, kind, sum_only>), address_of(&two_hop_reduce<P, kind, sum_only>)};
}

template <KernelType kind>
TypeKernels kernels_of() {
  constexpr bool has_sums = kind != KernelType::others;  // whether there are kernels that only add up
  return {{flagged_pair<Lines, kind, has_sums>(), flagged_pair<Lines, kind, false>()},
          flagged_pair<Packets, kind, false>(),
          {address_of(&bulk_exchange_reduce<kind>), address_of(&bulk_two_hop_reduce<kind>)},
          {address_of(&piped_exchange_reduce<kind>), address_of(&piped_two_hop_reduce<kind>)},
          {address_of(&prompt_exchange_reduce<Lines, kind, has_sums>),
           address_of(&prompt_exchange_reduce<Packets, kind, false>)},
          {address_of(&aggregate_reduce<Lines, kind>), address_of(&aggregate_reduce<Packets, kind>),
           address_of(&aggregate_reduce<Bulk, kind>)},
          {address_of(&add_chunks<kind, has_sums>), address_of(&add_chunks<kind, false>)}};
}

}  // namespace strait::kernels
