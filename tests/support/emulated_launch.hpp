#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/reduce_spec.hpp"
#include "kernels/kernel_type.hpp"
#include "kernels/layout.hpp"
#include "launches/device_aggregates.hpp"
#include "launches/device_calls.hpp"

/// Runs launches of the kernels of src/kernels on the CPU, for the protocols packets and bulk.
namespace strait::testing {

/// Makes the slots of packets and bulk as small as the smallest chunk, so that few bytes fill a ring.
inline void shrink_slots(kernels::ArenaLayout& layout) {
  for (const kernels::Protocol protocol : {kernels::Protocol::packets, kernels::Protocol::bulk})
    layout.slots[static_cast<std::size_t>(protocol)].slot_bytes = static_cast<std::uint32_t>(
        kernels::min_chunk_bytes(protocol) / kernels::piece_data_bytes(protocol) * kernels::piece_bytes);
}

/// Zeroed memory whose pages are allocated when first touched.
class Arena {
 public:
  explicit Arena(std::size_t bytes)
      : bytes_(bytes), data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Arena() { munmap(data_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

/// Calls `function.template operator()<kind>()`, with `kind` as a constant.
template <class F>
void visit_kernel_type(kernels::KernelType kind, F&& function) {
  switch (kind) {
    case kernels::KernelType::float16:
      return function.template operator()<kernels::KernelType::float16>();
    case kernels::KernelType::bfloat16:
      return function.template operator()<kernels::KernelType::bfloat16>();
    case kernels::KernelType::float32:
      return function.template operator()<kernels::KernelType::float32>();
    case kernels::KernelType::others:
      return function.template operator()<kernels::KernelType::others>();
  }
}
/// As above, with the kernel type that kernels for elements of `type` are compiled for.
template <class F>
void visit_kernel_type(DataType type, F&& function) {
  visit_kernel_type(kernels::kernel_type(type), function);
}

/// Run one thread of a block: the kernel that `launch` names, with `argument`, on elements of `type`.
void run_thread(const DeviceLaunch& launch, const kernels::Exchange& argument, DataType type);
void run_thread(const DeviceLaunch& launch, const kernels::StraightExchange& argument, DataType type);
void run_thread(const DeviceLaunch& launch, const kernels::OfferedMessages& argument, DataType type);
void run_thread(const DeviceLaunch& launch, const kernels::TwoHop& argument, DataType type);
void run_thread(const DeviceLaunch& launch, const kernels::EncodedExchange& argument, DataType type);
void run_thread(const DeviceLaunch& launch, const kernels::EncodedTwoHop& argument, DataType type);
/// Run block `index` of a launch; `seed` decides the order of its threads.
void run_block(const AggregateLaunch& launch, std::uint32_t index, std::uint32_t seed);
void run_block(const DeviceLaunch& launch, std::uint32_t index, DataType type, std::uint32_t seed);

/// Run all blocks of launches and expect that each block counts its end exactly once, even if it gives up. Launches run
/// one after another. So do the blocks of a launch, unless `together`: then no block may wait for something that a peer
/// does only after all its blocks of that launch have ended.
void run_launches(std::vector<DeviceLaunch> launches, DataType type, std::atomic<std::uint32_t>& seed,
                  bool together = false);
void run_launch(AggregateLaunch launch, std::atomic<std::uint32_t>& seed);

}  // namespace strait::testing
