#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/reduce_spec.hpp"
#include "device/aggregates.hpp"
#include "kernels/kernel_type.hpp"
#include "kernels/layout.hpp"
#include "launches/device_calls.hpp"

/// Launches of the kernels of src/kernels that go through packets or bulk, on the CPU.
namespace strait::testing {

/// As small as chunks may be, so that few bytes fill them.
inline void shrink_slots(kernels::ArenaLayout& layout) {
  for (const kernels::Protocol protocol : {kernels::Protocol::packets, kernels::Protocol::bulk})
    layout.slots[static_cast<std::size_t>(protocol)].slot_bytes = static_cast<std::uint32_t>(
        kernels::min_chunk_bytes(protocol) / kernels::piece_data_bytes(protocol) * kernels::piece_bytes);
}

/// Zeroed memory that is taken page by page.
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

/// Calls `function.template operator()<kind>()`.
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
/// With what the kernels of a type are compiled for.
template <class F>
void visit_kernel_type(DataType type, F&& function) {
  visit_kernel_type(kernels::kernel_type(type), function);
}

/// A thread of a block: what its kernel does with that argument.
void run_thread(const DeviceLaunch& launch, const kernels::Exchange& argument, DataType type);
void run_thread(const DeviceLaunch& launch, const kernels::StraightExchange& argument, DataType type);
void run_thread(const DeviceLaunch& launch, const kernels::OfferedMessages& argument, DataType type);
void run_thread(const DeviceLaunch& launch, const kernels::TwoHop& argument, DataType type);
void run_thread(const DeviceLaunch& launch, const kernels::EncodedExchange& argument, DataType type);
void run_thread(const DeviceLaunch& launch, const kernels::EncodedTwoHop& argument, DataType type);
/// The block of that index.
void run_block(const AggregateLaunch& launch, std::uint32_t index, std::uint32_t seed);
void run_block(const DeviceLaunch& launch, std::uint32_t index, DataType type, std::uint32_t seed);

/// Each block tells once that it has finished, also one that gives up. Unless they run `together`, one runs after
/// another: then none may wait for what a peer does when it is through with all blocks of a launch.
void run_launches(std::vector<DeviceLaunch> launches, DataType type, std::atomic<std::uint32_t>& seed,
                  bool together = false);
void run_launch(AggregateLaunch launch, std::atomic<std::uint32_t>& seed);

}  // namespace strait::testing
