#include "kernels/kernels.hpp"

#include <array>
#include <vector>

#include "kernels/exchange.cuh"
#include "kernels/two_hop.cuh"

namespace strait::kernels {

__global__ void __launch_bounds__(max_threads, 1) exchange_copy(const __grid_constant__ Exchange exchange) {
  __shared__ ExchangeRound shared;
  const auto as_it_is = [](const Granule& value) { return value; };
  const Ring& ring = exchange.ring;
  run_exchange(exchange, shared, as_it_is, [&] {
    copy_own(shared, exchange.pieces);
    return collect(ring, shared.incoming, ring.ranks - 1, exchange.pieces);
  });
}

__global__ void __launch_bounds__(max_threads, 1) two_hop_copy(const __grid_constant__ TwoHop call) {
  __shared__ TwoHopRound shared;
  const auto as_it_is = [](const Granule& value) { return value; };
  const std::uint32_t contributor = __ffs(static_cast<int>(call.contributors)) - 1;
  run_two_hop(call, shared, as_it_is, [&](const Place& place, Granule& value) {
    if (contributor == call.ring.rank) return true;
    const Incoming& chunk = shared.contributions_in[position_of(contributor, call.ring.rank, call.ring.ranks)];
    const Awaited awaited[1] = {{place.active ? chunk.slot + place.slot_offset : nullptr, chunk.flag, contributor}};
    Granule values[1] = {};
    if (!receive(call.ring, awaited, values)) return false;
    value = values[0];
    return true;
  });
}

const void* exchange_copy_kernel() { return reinterpret_cast<const void*>(&exchange_copy); }
const void* two_hop_copy_kernel() { return reinterpret_cast<const void*>(&two_hop_copy); }

namespace {

using Table = std::array<TypeKernels, data_type_count>;
const Table& table() {
  static const Table kernels = {
      kernels_of<DataType::int8>(),     kernels_of<DataType::uint8>(),       kernels_of<DataType::int32>(),
      kernels_of<DataType::uint32>(),   kernels_of<DataType::int64>(),       kernels_of<DataType::uint64>(),
      kernels_of<DataType::float16>(),  kernels_of<DataType::float32>(),     kernels_of<DataType::float64>(),
      kernels_of<DataType::bfloat16>(), kernels_of<DataType::float8_e4m3>(), kernels_of<DataType::float8_e5m2>()};
  return kernels;
}
const TypeKernels& of(DataType type) { return table()[static_cast<std::size_t>(type)]; }

}  // namespace

const void* exchange_reduce_kernel(DataType type, ReduceOp op) {
  return of(type).exchange[op == ReduceOp::sum ? 0 : 1];
}
const void* two_hop_reduce_kernel(DataType type, ReduceOp op) { return of(type).two_hop[op == ReduceOp::sum ? 0 : 1]; }

std::span<const void* const> all_kernels() {
  static const std::vector<const void*> all = [] {
    std::vector<const void*> made{exchange_copy_kernel(), two_hop_copy_kernel()};
    for (const TypeKernels& kernels : table())
      for (int i = 0; i < 2; ++i) made.insert(made.end(), {kernels.exchange[i], kernels.two_hop[i]});
    return made;
  }();
  return all;
}

}  // namespace strait::kernels
