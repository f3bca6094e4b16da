#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <typeindex>
#include <vector>

#include "support/fibers.hpp"

/// The subset of CUDA that the kernels of src/kernels need to run on the CPU. A block is a CPU thread and the block's
/// threads are fibers on it; memory is the process's memory, whose accesses are atomic in units of 16 bytes; threads
/// are delayed at random. What needs stronger guarantees (lines, which must arrive in units of 128 bytes) cannot be
/// tested this way.
#define STRAIT_EMULATED_GPU
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define STRAIT_NOINLINE

namespace strait::testing {

/// The memory of a block (`__shared__`) or of one thread: one object of each type, created when first asked for.
class OwnMemory {
 public:
  template <class T>
  T& of() {
    auto& place = memory_[typeid(T)];
    if (!place) {
      place = std::make_shared<T>();
      // As on a GPU, memory is not zeroed: the pattern makes a read before the first write conspicuous.
      if constexpr (std::is_trivially_copyable_v<T>) std::memset(place.get(), 0x5a, sizeof(T));
    }
    return *static_cast<T*>(place.get());
  }

 private:
  std::map<std::type_index, std::shared_ptr<void>> memory_;
};

/// A running block: the state that its threads share.
struct EmulatedBlock {
  using Meeting = Fibers::Meeting;
  explicit EmulatedBlock(std::uint32_t count)
      : everyone(count), warps(count / 32, Meeting(32)), threads(count), voted_(count) {}
  /// Returns whether any of the threads [first, first + count), which all call this with the same `meeting`, passes
  /// `yes`.
  bool any(Meeting& meeting, std::uint32_t first, std::uint32_t count, std::uint32_t thread, bool yes) {
    voted_[thread] = yes ? 1 : 0;
    meeting.arrive_and_wait();
    bool result = false;
    for (std::uint32_t i = first; i < first + count; ++i) result |= voted_[i] != 0;
    meeting.arrive_and_wait();
    return result;
  }

  /// Returns the value passed by thread `other`, one of the 32 that call this with the same `meeting`.
  std::uint32_t exchange(Meeting& meeting, std::uint32_t thread, std::uint32_t other, std::uint32_t value) {
    voted_[thread] = value;
    meeting.arrive_and_wait();
    const std::uint32_t result = voted_[other];
    meeting.arrive_and_wait();
    return result;
  }

  Meeting everyone;
  std::vector<Meeting> warps;
  OwnMemory shared;
  std::vector<OwnMemory> threads;

 private:
  std::vector<std::uint32_t> voted_;
};

struct Index {
  std::uint32_t x = 0;
};
inline thread_local EmulatedBlock* block = nullptr;
inline thread_local std::uint32_t delay_state = 1;

/// A lock on the 16-byte granule at `place`: accesses to it that hold this lock are atomic with respect to each other.
class WholeGranules {
 public:
  explicit WholeGranules(const void* place) : busy_(all_[reinterpret_cast<std::uintptr_t>(place) / 16 % all_.size()]) {
    while (busy_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  ~WholeGranules() { busy_.clear(std::memory_order_release); }
  WholeGranules(const WholeGranules&) = delete;
  WholeGranules& operator=(const WholeGranules&) = delete;

 private:
  inline static std::array<std::atomic_flag, 1024> all_;
  std::atomic_flag& busy_;
};

/// Lets other threads run first now and then, once or many times.
inline void perhaps_delay() {
  delay_state = delay_state * 1664525u + 1013904223u;
  const std::uint32_t chance = delay_state >> 24;
  if (chance >= 32) return;
  for (std::uint32_t turns = chance == 0 ? delay_state >> 16 & 0xff : 1; turns != 0; --turns) Fibers::let_others();
}

}  // namespace strait::testing

inline thread_local strait::testing::Index threadIdx, blockIdx, blockDim, gridDim;

namespace strait::testing {

/// Runs block `index` of a launch of `blocks` blocks, each of `threads` threads. `seed` decides the order of the
/// threads.
inline void run_threads(std::uint32_t threads, std::uint32_t blocks, std::uint32_t index, std::uint32_t seed,
                        const std::function<void()>& run_thread) {
  EmulatedBlock running(threads);
  block = &running;
  delay_state = seed * 131 + index * 17;
  blockIdx.x = index;
  blockDim.x = threads;
  gridDim.x = blocks;
  Fibers::run(
      threads, delay_state, [&](std::uint32_t) { run_thread(); }, [](std::uint32_t thread) { threadIdx.x = thread; });
  block = nullptr;
}

}  // namespace strait::testing

inline void __syncthreads() { strait::testing::block->everyone.arrive_and_wait(); }
inline int __syncthreads_or(int yes) {
  auto& block = *strait::testing::block;
  return block.any(block.everyone, 0, blockDim.x, threadIdx.x, yes != 0) ? 1 : 0;
}
inline void __syncwarp() { strait::testing::block->warps[threadIdx.x / 32].arrive_and_wait(); }
inline int __any_sync(unsigned /*mask*/, int yes) {
  auto& block = *strait::testing::block;
  const std::uint32_t warp = threadIdx.x / 32;
  return block.any(block.warps[warp], warp * 32, 32, threadIdx.x, yes != 0) ? 1 : 0;
}
/// As CUDA's, for a full warp: the mask is ignored.
inline std::uint32_t __shfl_xor_sync(unsigned /*mask*/, std::uint32_t value, int apart) {
  auto& block = *strait::testing::block;
  const std::uint32_t thread = threadIdx.x;
  return block.exchange(block.warps[thread / 32], thread, thread ^ static_cast<std::uint32_t>(apart), value);
}
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }

namespace strait::kernels {

struct alignas(16) Granule {
  std::uint64_t low;
  std::uint64_t high;
};

inline std::uint64_t load_word(const std::uint64_t* from) {
  testing::perhaps_delay();
  return std::atomic_ref(*const_cast<std::uint64_t*>(from)).load(std::memory_order_acquire);
}
inline std::uint64_t acquire_word(const std::uint64_t* from) { return load_word(from); }
inline void store_word(std::uint64_t* to, std::uint64_t value) {
  testing::perhaps_delay();
  std::atomic_ref(*to).store(value, std::memory_order_release);
}
inline Granule load_granule(const std::byte* from) {
  testing::perhaps_delay();
  const testing::WholeGranules lock(from);
  auto* words = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(from));
  return {std::atomic_ref(words[0]).load(), std::atomic_ref(words[1]).load()};
}
inline void store_granule(std::byte* to, const Granule& granule) {
  testing::perhaps_delay();
  const testing::WholeGranules lock(to);
  auto* words = reinterpret_cast<std::uint64_t*>(to);
  std::atomic_ref(words[0]).store(granule.low);
  std::atomic_ref(words[1]).store(granule.high);
}
inline std::uint32_t acquire_count(const std::uint32_t* from) {
  testing::perhaps_delay();
  return std::atomic_ref(*const_cast<std::uint32_t*>(from)).load(std::memory_order_acquire);
}
inline void store_count(std::uint32_t* to, std::uint32_t value) {
  testing::perhaps_delay();
  std::atomic_ref(*to).store(value, std::memory_order_release);
}
inline std::uint32_t count_up(std::uint32_t* word) { return std::atomic_ref(*word).fetch_add(1); }
inline void add_count(std::uint32_t* word, std::uint32_t value) {
  testing::perhaps_delay();
  std::atomic_ref(*word).fetch_add(value, std::memory_order_relaxed);
}
inline void count_up_released(std::uint32_t* word) {
  testing::perhaps_delay();
  std::atomic_ref(*word).fetch_add(1, std::memory_order_release);
}
inline void store_granule_if(bool condition, std::byte* to, const Granule& g) {
  if (condition) store_granule(to, g);
}
/// The only memory that load_plain() may read, for tests that check this; null: it may read anything.
inline thread_local const std::span<const std::byte>* may_load = nullptr;
inline thread_local bool loaded_elsewhere = false;
/// As on a GPU, load_plain() and store_plain() are not atomic: a read too early or a write too late is a data race,
/// which ThreadSanitizer reports.
inline Granule load_plain(const std::byte* from) {
  if (may_load != nullptr)
    loaded_elsewhere |= from < may_load->data() || from + sizeof(Granule) > may_load->data() + may_load->size();
  testing::perhaps_delay();
  return *reinterpret_cast<const Granule*>(from);
}
inline void store_plain(std::byte* to, const Granule& granule) {
  testing::perhaps_delay();
  *reinterpret_cast<Granule*>(to) = granule;
}
inline constexpr std::uint32_t polls_between_looks = 16;
inline std::uint64_t device_now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}
inline void after_predecessor() {}
template <class Argument>
void fetch_arguments(const Argument& /*argument*/) {}
inline void prefetch(const std::byte* /*from*/) {}
inline void prefetch_far(const void* /*from*/) {}
template <class T>
T& shared_memory() {
  return testing::block->shared.of<T>();
}

}  // namespace strait::kernels
