#pragma once

// First: it stands for CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include "support/emulated_async.hpp"
//
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "communicator/aggregates.hpp"
#include "communicator/device_calls.hpp"
#include "host/collective_case.hpp"
#include "kernels/aggregate.cuh"
#include "kernels/bulk_encoded.cuh"
#include "kernels/bulk_exchange.cuh"
#include "kernels/bulk_messages.cuh"
#include "kernels/bulk_two_hop.cuh"
#include "kernels/cut.hpp"
#include "kernels/exchange.cuh"
#include "kernels/piped_kernels.cuh"
#include "kernels/two_hop.cuh"
#include "support/calls.hpp"
#include "support/random_data.hpp"
#include "support/wire_reference.hpp"

/// Launches of the kernels of src/kernels that go through packets or bulk, on the CPU.
namespace strait::testing {

/// As small as chunks may be, so that few bytes fill them.
inline void shrink_slots(kernels::ArenaLayout& layout) {
  for (const kernels::Wire wire : {kernels::Wire::packets, kernels::Wire::bulk})
    layout.slots[static_cast<std::size_t>(wire)].slot_bytes = static_cast<std::uint32_t>(
        kernels::min_chunk_bytes(wire) / kernels::piece_data_bytes(wire) * kernels::piece_bytes);
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

inline void run_piped_thread(const DeviceLaunch& launch, const kernels::Exchange& argument, DataType type) {
  if (!launch.reduces) return kernels::piped_exchange_copy(argument);
  spec::visit(type, [&]<DataType t>() {
    if constexpr (kernels::has_pair_sum<t>) kernels::piped_exchange_sum<t>(argument);
  });
}
inline void run_piped_thread(const DeviceLaunch& launch, const kernels::TwoHop& argument, DataType type) {
  if (!launch.reduces) std::abort();  // there is none
  spec::visit(type, [&]<DataType t>() {
    if constexpr (kernels::has_pair_sum<t>) kernels::piped_two_hop_sum<t>(argument);
  });
}
inline void run_thread(const DeviceLaunch& launch, const kernels::Exchange& argument, DataType type) {
  if (launch.piped) return run_piped_thread(launch, argument, type);
  const bool is_bulk = launch.wire == kernels::Wire::bulk;
  if (launch.apart)
    return is_bulk ? kernels::bulk_messages(argument) : kernels::exchange_copy<kernels::Packets, true>(argument);
  if (!launch.reduces)
    return is_bulk ? kernels::bulk_exchange_copy(argument) : kernels::exchange_copy<kernels::Packets>(argument);
  spec::visit(type, [&]<DataType t>() {
    is_bulk ? kernels::bulk_exchange_reduce<t>(argument)
            : kernels::exchange_reduce<kernels::Packets, t, false>(argument);
  });
}
inline void run_thread(const DeviceLaunch& launch, const kernels::TwoHop& argument, DataType type) {
  if (launch.piped) return run_piped_thread(launch, argument, type);
  const bool is_bulk = launch.wire == kernels::Wire::bulk;
  if (!launch.reduces)
    return is_bulk ? kernels::bulk_two_hop_copy(argument) : kernels::two_hop_copy<kernels::Packets>(argument);
  spec::visit(type, [&]<DataType t>() {
    is_bulk ? kernels::bulk_two_hop_reduce<t>(argument) : kernels::two_hop_reduce<kernels::Packets, t, false>(argument);
  });
}
inline void run_thread(const DeviceLaunch& launch, const kernels::EncodedExchange& argument, DataType type) {
  visit_wire(launch.encoding, [&]<WireFormat format>() {
    spec::visit(type, [&]<DataType t>() {
      if constexpr (wire::is_wire_type(t))
        launch.reduces ? kernels::encoded_exchange_sum<format, t>(argument)
                       : kernels::encoded_exchange_copy<format, t>(argument);
    });
  });
}
inline void run_thread(const DeviceLaunch& launch, const kernels::EncodedTwoHop& argument, DataType type) {
  visit_wire(launch.encoding, [&]<WireFormat format>() {
    spec::visit(type, [&]<DataType t>() {
      if constexpr (wire::is_wire_type(t)) kernels::encoded_two_hop_sum<format, t>(argument);
    });
  });
}

/// The block of that index.
template <class RunThread>
void run_threads(std::uint32_t threads, std::uint32_t blocks, std::uint32_t index, std::uint32_t seed,
                 RunThread&& run_thread) {
  EmulatedBlock shared(threads);
  std::vector<std::jthread> running;
  for (std::uint32_t thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      block = &shared;
      delay_state = seed * 131 + index * 17 + thread;
      threadIdx.x = thread;
      blockIdx.x = index;
      blockDim.x = threads;
      gridDim.x = blocks;
      run_thread();
    });
}

/// With fewer threads than on a GPU: the kernels take any number of warps that has a thread for each rank on each of a
/// block's lanes.
inline void run_block(const DeviceLaunch& launch, std::uint32_t index, DataType type, std::uint32_t seed) {
  const std::uint32_t minders =
      std::visit([](const auto& argument) { return argument.ring.ranks * argument.width; }, launch.argument);
  const std::uint32_t threads = launch.piped ? std::min(launch.threads, kernels::piped_mover_threads + 32)
                                             : std::min(launch.threads, std::max((minders + 31) / 32 * 32, 64u));
  run_threads(threads, launch.blocks, index, seed,
              [&] { std::visit([&](const auto& argument) { run_thread(launch, argument, type); }, launch.argument); });
}
template <class W>
void run_thread(const AggregateLaunch& launch) {
  if (!launch.reduces) return kernels::aggregate_copy<W>(launch.argument);
  spec::visit(launch.type, [&]<DataType t>() { kernels::aggregate_reduce<W, t>(launch.argument); });
}
inline void run_block(const AggregateLaunch& launch, std::uint32_t index, std::uint32_t seed) {
  run_threads(std::min(launch.threads, 128u), launch.blocks, index, seed, [&] {
    launch.wire == kernels::Wire::bulk ? run_thread<kernels::Bulk>(launch) : run_thread<kernels::Packets>(launch);
  });
}

/// Each block tells once that it has finished, also one that gives up. Unless they run `together`, one runs after
/// another: then none may wait for what a peer does when it is through with all blocks of a launch.
inline void run_launches(std::vector<DeviceLaunch> launches, DataType type, std::atomic<std::uint32_t>& seed,
                         bool together = false) {
  std::uint32_t finished = 0, blocks = 0;
  for (DeviceLaunch& launch : launches) {
    std::visit([&](auto& argument) { argument.ring.finished = &finished; }, launch.argument);
    std::vector<std::jthread> running;
    for (std::uint32_t index = 0; index < launch.blocks; ++index) {
      running.emplace_back([&launch, index, type, now = ++seed] { run_block(launch, index, type, now); });
      if (!together) running.clear();
    }
    running.clear();
    EXPECT_EQ(std::atomic_ref(finished), blocks += launch.blocks);
  }
}

inline void run_launch(AggregateLaunch launch, std::atomic<std::uint32_t>& seed) {
  std::uint32_t finished = 0;
  launch.argument.ring.finished = &finished;
  for (std::uint32_t index = 0; index < launch.blocks; ++index) run_block(launch, index, ++seed);
  EXPECT_EQ(std::atomic_ref(finished), launch.blocks);
}

}  // namespace strait::testing
