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

const TypeKernels& of(KernelType kind) {
  static const std::array<TypeKernels, std::size(all_kernel_types)> table = {
      kernels_of<KernelType::float16>(), kernels_of<KernelType::bfloat16>(), kernels_of<KernelType::float32>(),
      kernels_of<KernelType::others>()};
  return table[static_cast<std::size_t>(kind)];
}
const TypeKernels& of(DataType type) { return of(kernel_type(type)); }
const TypeKernels::Pair& of(const TypeKernels& kernels, Wire wire, ReduceOp op) {
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
const void* prompt_reduce_kernel(Wire wire, DataType type) { return of(type).prompt[wire == Wire::lines ? 0 : 1]; }
const void* two_hop_copy_kernel(Wire wire) { return copies(wire).two_hop; }
const void* straight_copy_kernel() { return reinterpret_cast<const void*>(&straight_copy<>); }
const void* offered_messages_kernel() { return reinterpret_cast<const void*>(&offered_messages<>); }
const void* aggregate_copy_kernel(Wire wire) {
  if (wire == Wire::lines) return reinterpret_cast<const void*>(&aggregate_copy<Lines>);
  return wire == Wire::packets ? reinterpret_cast<const void*>(&aggregate_copy<Packets>)
                               : reinterpret_cast<const void*>(&aggregate_copy<Bulk>);
}
const void* aggregate_reduce_kernel(Wire wire, DataType type) {
  return of(type).aggregate[static_cast<std::size_t>(wire)];
}
const void* exchange_reduce_kernel(Wire wire, DataType type, ReduceOp op) { return of(of(type), wire, op).exchange; }
const void* two_hop_reduce_kernel(Wire wire, DataType type, ReduceOp op) { return of(of(type), wire, op).two_hop; }

const void* add_kernel(DataType type, ReduceOp op) { return of(type).add[op == ReduceOp::sum ? 0 : 1]; }
std::vector<const void*> all_add_kernels() {
  std::vector<const void*> all;
  for (const KernelType kind : all_kernel_types)
    for (const void* kernel : of(kind).add)
      if (std::find(all.begin(), all.end(), kernel) == all.end()) all.push_back(kernel);
  return all;
}

PipedKernel piped_copy_kernel(bool one_hop) {
  if (!one_hop) return {reinterpret_cast<const void*>(&piped_two_hop_copy<>), sizeof(PipedTwoHopMemory)};
  return {reinterpret_cast<const void*>(&piped_exchange_copy<>), sizeof(PipedCopyMemory)};
}
PipedKernel piped_reduce_kernel(bool one_hop, KernelType kind) {
  const TypeKernels::Pair& pair = of(kind).piped;
  if (one_hop) return {pair.exchange, sizeof(PipedSumMemory)};
  return {pair.two_hop, sizeof(PipedTwoHopMemory)};
}
std::uint32_t piped_memory_bytes() {
  return std::max({sizeof(PipedCopyMemory), sizeof(PipedSumMemory), sizeof(PipedTwoHopMemory)});
}
std::vector<PipedKernel> all_piped_kernels() {
  std::vector<PipedKernel> all{piped_copy_kernel(true), piped_copy_kernel(false)};
  for (const KernelType kind : all_kernel_types)
    for (const bool one_hop : {true, false}) all.push_back(piped_reduce_kernel(one_hop, kind));
  return all;
}

std::vector<const void*> all_kernels(Wire wire) {
  std::vector<const void*> all{exchange_copy_kernel(wire, false), exchange_copy_kernel(wire, true),
                               two_hop_copy_kernel(wire), aggregate_copy_kernel(wire)};
  if (wire == Wire::bulk)
    all.insert(all.end(), {straight_copy_kernel(), offered_messages_kernel()});
  else
    all.push_back(prompt_copy_kernel(wire));
  for (const KernelType kind : all_kernel_types) {
    const TypeKernels& kernels = of(kind);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
      const TypeKernels::Pair& pair = of(kernels, wire, op);
      if (std::find(all.begin(), all.end(), pair.exchange) == all.end())
        all.insert(all.end(), {pair.exchange, pair.two_hop});
    }
    if (wire != Wire::bulk) all.push_back(kernels.prompt[wire == Wire::lines ? 0 : 1]);
    all.push_back(kernels.aggregate[static_cast<std::size_t>(wire)]);
  }
  return all;
}

}  // namespace strait::kernels
