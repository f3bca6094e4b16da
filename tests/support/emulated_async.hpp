#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "support/emulated_gpu.hpp"

/// kernels/async_copy.cuh on the CPU, with copies as late as the hardware allows. A load happens only when its barrier
/// is polled, one load per poll. A store reads its source only in wait_left() and writes its destination only in
/// wait_stored(), both called by the thread that started it.
namespace strait::kernels {

class Barrier {
 public:
  ~Barrier() {
    if (loads_.empty()) return;
    std::fprintf(stderr, "a block ended before what it loads was there\n");
    std::abort();
  }
  void prepare(std::uint32_t arrivals) {
    const std::lock_guard lock(mutex_);
    arrivals_ = missing_ = arrivals;
  }
  void arrive(std::uint32_t bytes) {
    const std::lock_guard lock(mutex_);
    expected_bytes_ += bytes;
    --missing_;
    end_phase();
  }
  void load(std::byte* to, const std::byte* from, std::uint32_t bytes) {
    const std::lock_guard lock(mutex_);
    loads_.push_back({to, from, bytes});
  }
  bool has_ended(std::uint32_t parity) {
    testing::perhaps_delay();
    const std::lock_guard lock(mutex_);
    if (!loads_.empty()) {
      const Load load = loads_.front();
      loads_.pop_front();
      std::memcpy(load.to, load.from, load.bytes);
      expected_bytes_ -= load.bytes;
      end_phase();
    }
    return phase_ % 2 != parity;
  }

 private:
  struct Load {
    std::byte* to;
    const std::byte* from;
    std::uint32_t bytes;
  };
  void end_phase() {
    if (missing_ != 0 || expected_bytes_ != 0) return;
    ++phase_;
    missing_ = arrivals_;
  }
  std::mutex mutex_;
  std::uint32_t arrivals_ = 1, missing_ = 1, phase_ = 0;
  std::int64_t expected_bytes_ = 0;
  std::deque<Load> loads_;
};

/// The asynchronous stores that one thread has started and that are not complete, by group.
class Stores {
 public:
  ~Stores() {
    if (groups_.empty() && open_.empty()) return;
    std::fprintf(stderr, "a thread ended before what it stores was stored\n");
    std::abort();
  }
  void add(std::byte* to, const std::byte* from, std::uint32_t bytes) { open_.push_back({to, from, bytes, {}}); }
  void close() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  void wait_left(std::size_t pending) {
    for (std::size_t i = 0; i + pending < groups_.size(); ++i)
      for (Store& store : groups_[i])
        if (store.data.empty()) store.data.assign(store.from, store.from + store.bytes);
  }
  void wait_stored(std::size_t pending) {
    wait_left(pending);
    for (; groups_.size() > pending; groups_.pop_front())
      for (const Store& store : groups_.front()) std::memcpy(store.to, store.data.data(), store.bytes);
  }

 private:
  struct Store {
    std::byte* to;
    const std::byte* from;
    std::uint32_t bytes;
    std::vector<std::byte> data;  ///< the source's bytes, once wait_left() has read them
  };
  std::vector<Store> open_;
  std::deque<std::vector<Store>> groups_;
};
inline Stores& stores() { return testing::block->threads[threadIdx.x].of<Stores>(); }

inline void prepare_barrier(Barrier& barrier, std::uint32_t arrivals) { barrier.prepare(arrivals); }
inline void arrive(Barrier& barrier) { barrier.arrive(0); }
inline void arrive_expecting(Barrier& barrier, std::uint32_t bytes) { barrier.arrive(bytes); }
inline void pause() { testing::Fibers::let_others(); }
/// Advances by different amounts from call to call, so that the caller sees both short and long times.
inline std::uint64_t clock_cycles() {
  constexpr std::uint64_t between_cycles[]{1000, 5000, 2000};
  static thread_local std::uint64_t now_cycles = 0, questions = 0;
  return now_cycles += between_cycles[questions++ % 3];
}
inline bool has_ended(Barrier& barrier, std::uint32_t parity) {
  if (barrier.has_ended(parity)) return true;
  pause();
  return false;
}
/// Aborts if the hardware would reject a copy: both addresses and the length must be multiples of 16, the length not 0.
inline void check_copy(const std::byte* a, const std::byte* b, std::uint32_t bytes) {
  const auto bits = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) | bytes;
  if (bits % 16 == 0 && bytes != 0) return;
  std::fprintf(stderr, "an asynchronous copy of %u bytes whose addresses or length are no multiples of 16\n", bytes);
  std::abort();
}
inline void load_async(std::byte* shared, const std::byte* from, std::uint32_t bytes, Barrier& barrier) {
  check_copy(shared, from, bytes);
  barrier.load(shared, from, bytes);
}
inline void store_async(std::byte* to, const std::byte* shared, std::uint32_t bytes) {
  check_copy(to, shared, bytes);
  stores().add(to, shared, bytes);
}
inline void close_group() { stores().close(); }
template <int pending>
void wait_left() {
  stores().wait_left(pending);
}
template <int pending>
void wait_stored() {
  stores().wait_stored(pending);
}
inline void fence_async_shared() {}
inline void fence_async_global() {}
inline std::uint32_t load_progress(const std::uint32_t& progress) {
  testing::perhaps_delay();
  return std::atomic_ref(const_cast<std::uint32_t&>(progress)).load(std::memory_order_acquire);
}
inline void store_progress(std::uint32_t& progress, std::uint32_t value) {
  testing::perhaps_delay();
  std::atomic_ref(progress).store(value, std::memory_order_release);
}
template <class T>
T& launched_memory() {
  return testing::block->shared.of<T>();
}

}  // namespace strait::kernels
