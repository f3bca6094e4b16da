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
const TypeKernels::Pair& of(const TypeKernels& kernels, Protocol protocol, ReduceOp op) {
  if (protocol == Protocol::lines) return kernels.lines[op == ReduceOp::sum ? 0 : 1];
  return protocol == Protocol::packets ? kernels.packets : kernels.bulk;
}

template <class P>
TypeKernels::Pair copies_over() {
  return {reinterpret_cast<const void*>(&exchange_copy<P>), reinterpret_cast<const void*>(&two_hop_copy<P>)};
}
TypeKernels::Pair copies(Protocol protocol) {
  if (protocol == Protocol::lines) return copies_over<Lines>();
  if (protocol == Protocol::packets) return copies_over<Packets>();
  return {reinterpret_cast<const void*>(&bulk_exchange_copy<>), reinterpret_cast<const void*>(&bulk_two_hop_copy<>)};
}

}  // namespace

const void* exchange_copy_kernel(Protocol protocol, bool independent) {
  if (!independent) return copies(protocol).exchange;
  if (protocol == Protocol::lines) return reinterpret_cast<const void*>(&exchange_copy<Lines, true>);
  if (protocol == Protocol::packets) return reinterpret_cast<const void*>(&exchange_copy<Packets, true>);
  return reinterpret_cast<const void*>(&bulk_messages<>);
}
const void* prompt_copy_kernel(Protocol protocol) {
  return protocol == Protocol::lines ? reinterpret_cast<const void*>(&prompt_exchange_copy<Lines>)
                                     : reinterpret_cast<const void*>(&prompt_exchange_copy<Packets>);
}
const void* prompt_reduce_kernel(Protocol protocol, DataType type) {
  return of(type).prompt[protocol == Protocol::lines ? 0 : 1];
}
const void* two_hop_copy_kernel(Protocol protocol) { return copies(protocol).two_hop; }
const void* straight_copy_kernel() { return reinterpret_cast<const void*>(&straight_copy<>); }
const void* offered_messages_kernel() { return reinterpret_cast<const void*>(&offered_messages<>); }
const void* aggregate_copy_kernel(Protocol protocol) {
  if (protocol == Protocol::lines) return reinterpret_cast<const void*>(&aggregate_copy<Lines>);
  return protocol == Protocol::packets ? reinterpret_cast<const void*>(&aggregate_copy<Packets>)
                                       : reinterpret_cast<const void*>(&aggregate_copy<Bulk>);
}
const void* aggregate_reduce_kernel(Protocol protocol, DataType type) {
  return of(type).aggregate[static_cast<std::size_t>(protocol)];
}
const void* exchange_reduce_kernel(Protocol protocol, DataType type, ReduceOp op) {
  return of(of(type), protocol, op).exchange;
}
const void* two_hop_reduce_kernel(Protocol protocol, DataType type, ReduceOp op) {
  return of(of(type), protocol, op).two_hop;
}

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

std::vector<const void*> all_kernels(Protocol protocol) {
  std::vector<const void*> all{exchange_copy_kernel(protocol, false), exchange_copy_kernel(protocol, true),
                               two_hop_copy_kernel(protocol), aggregate_copy_kernel(protocol)};
  if (protocol == Protocol::bulk)
    all.insert(all.end(), {straight_copy_kernel(), offered_messages_kernel()});
  else
    all.push_back(prompt_copy_kernel(protocol));
  for (const KernelType kind : all_kernel_types) {
    const TypeKernels& kernels = of(kind);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
      const TypeKernels::Pair& pair = of(kernels, protocol, op);
      if (std::find(all.begin(), all.end(), pair.exchange) == all.end())
        all.insert(all.end(), {pair.exchange, pair.two_hop});
    }
    if (protocol != Protocol::bulk) all.push_back(kernels.prompt[protocol == Protocol::lines ? 0 : 1]);
    all.push_back(kernels.aggregate[static_cast<std::size_t>(protocol)]);
  }
  return all;
}

}  // namespace strait::kernels
