#include "kernels/kernels.hpp"

#include <algorithm>
#include <array>

#include "kernels/aggregate.cuh"
#include "kernels/bulk_exchange.cuh"
#include "kernels/bulk_messages.cuh"
#include "kernels/bulk_two_hop.cuh"
#include "kernels/exchange.cuh"
#include "kernels/piped_kernels.cuh"
#include "kernels/prompt.cuh"
#include "kernels/straight.cuh"
#include "kernels/two_hop.cuh"

namespace strait::kernels {

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
const TypeKernels::Pair& of(Wire wire, DataType type, ReduceOp op) {
  const TypeKernels& kernels = table()[static_cast<std::size_t>(type)];
  if (wire == Wire::lines) return kernels.lines[op == ReduceOp::sum ? 0 : 1];
  return wire == Wire::packets ? kernels.packets : kernels.bulk;
}

template <class W>
TypeKernels::Pair copies_over() {
  return {reinterpret_cast<const void*>(&exchange_copy<W>), reinterpret_cast<const void*>(&two_hop_copy<W>)};
}
TypeKernels::Pair copies(Wire wire) {
  if (wire == Wire::lines) return copies_over<Lines>();
  if (wire == Wire::packets) return copies_over<Packets>();
  return {reinterpret_cast<const void*>(&bulk_exchange_copy<>), reinterpret_cast<const void*>(&bulk_two_hop_copy<>)};
}

}  // namespace

const void* exchange_copy_kernel(Wire wire, bool apart) {
  if (!apart) return copies(wire).exchange;
  if (wire == Wire::lines) return reinterpret_cast<const void*>(&exchange_copy<Lines, true>);
  if (wire == Wire::packets) return reinterpret_cast<const void*>(&exchange_copy<Packets, true>);
  return reinterpret_cast<const void*>(&bulk_messages<>);
}
const void* prompt_copy_kernel(Wire wire) {
  return wire == Wire::lines ? reinterpret_cast<const void*>(&prompt_exchange_copy<Lines>)
                             : reinterpret_cast<const void*>(&prompt_exchange_copy<Packets>);
}
const void* prompt_reduce_kernel(Wire wire, DataType type) {
  return table()[static_cast<std::size_t>(type)].prompt[wire == Wire::lines ? 0 : 1];
}
const void* two_hop_copy_kernel(Wire wire) { return copies(wire).two_hop; }
const void* straight_copy_kernel() { return reinterpret_cast<const void*>(&straight_copy<>); }
const void* offered_messages_kernel() { return reinterpret_cast<const void*>(&offered_messages<>); }
const void* aggregate_copy_kernel(Wire wire) {
  if (wire == Wire::lines) return reinterpret_cast<const void*>(&aggregate_copy<Lines>);
  return wire == Wire::packets ? reinterpret_cast<const void*>(&aggregate_copy<Packets>)
                               : reinterpret_cast<const void*>(&aggregate_copy<Bulk>);
}
const void* aggregate_reduce_kernel(Wire wire, DataType type) {
  return table()[static_cast<std::size_t>(type)].aggregate[static_cast<std::size_t>(wire)];
}
const void* exchange_reduce_kernel(Wire wire, DataType type, ReduceOp op) { return of(wire, type, op).exchange; }
const void* two_hop_reduce_kernel(Wire wire, DataType type, ReduceOp op) { return of(wire, type, op).two_hop; }

const void* add_kernel(DataType type, ReduceOp op) {
  return table()[static_cast<std::size_t>(type)].add[op == ReduceOp::sum ? 0 : 1];
}
std::vector<const void*> all_add_kernels() {
  std::vector<const void*> all;
  for (const TypeKernels& kernels : table()) all.insert(all.end(), std::begin(kernels.add), std::end(kernels.add));
  return all;
}

PipedKernel piped_copy_kernel(bool one_hop) {
  if (!one_hop) return {reinterpret_cast<const void*>(&piped_two_hop_copy<>), sizeof(PipedTwoHopMemory)};
  return {reinterpret_cast<const void*>(&piped_exchange_copy<>), sizeof(PipedCopyMemory)};
}
PipedKernel piped_sum_kernel(bool one_hop, DataType type) {
  const TypeKernels::Pair& pair = table()[static_cast<std::size_t>(type)].piped;
  if (one_hop) return {pair.exchange, sizeof(PipedSumMemory)};
  return {pair.two_hop, sizeof(PipedTwoHopMemory)};
}
std::uint32_t piped_memory_bytes() {
  return std::max({sizeof(PipedCopyMemory), sizeof(PipedSumMemory), sizeof(PipedTwoHopMemory)});
}
std::vector<PipedKernel> all_piped_kernels() {
  std::vector<PipedKernel> all{piped_copy_kernel(true), piped_copy_kernel(false)};
  for (const bool one_hop : {true, false})
    for (std::size_t type = 0; type < data_type_count; ++type) {
      const PipedKernel sum = piped_sum_kernel(one_hop, static_cast<DataType>(type));
      if (sum.kernel != nullptr) all.push_back(sum);
    }
  return all;
}

std::vector<const void*> all_kernels(Wire wire) {
  std::vector<const void*> all{exchange_copy_kernel(wire, false), exchange_copy_kernel(wire, true),
                               two_hop_copy_kernel(wire)};
  for (std::size_t type = 0; type < data_type_count; ++type)
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
      const TypeKernels::Pair& pair = of(wire, static_cast<DataType>(type), op);
      if (std::find(all.begin(), all.end(), pair.exchange) == all.end())
        all.insert(all.end(), {pair.exchange, pair.two_hop});
    }
  if (wire != Wire::bulk) {
    all.push_back(prompt_copy_kernel(wire));
    for (std::size_t type = 0; type < data_type_count; ++type)
      all.push_back(prompt_reduce_kernel(wire, static_cast<DataType>(type)));
  }
  all.push_back(aggregate_copy_kernel(wire));
  if (wire == Wire::bulk) all.insert(all.end(), {straight_copy_kernel(), offered_messages_kernel()});
  for (std::size_t type = 0; type < data_type_count; ++type)
    all.push_back(aggregate_reduce_kernel(wire, static_cast<DataType>(type)));
  return all;
}

}  // namespace strait::kernels
