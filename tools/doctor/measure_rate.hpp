#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <random>

#include "doctor/team.hpp"

namespace strait::doctor {

/// Memory that is already touched. It starts at a cache line, like slots and the buffers of most programs, after a
/// random number of unused pages.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(std::size_t bytes) : size_(bytes), skipped_(any_pages()) {
    const std::size_t whole = (skipped_ + bytes + alignment - 1) / alignment * alignment;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, whole)));
    if (!memory_) throw std::bad_alloc();
    std::fill_n(data(), bytes, std::byte{1});
  }
  std::byte* data() const { return memory_.get() + skipped_; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t alignment = 64;
  static std::size_t any_pages() {
    thread_local std::minstd_rand random(std::random_device{}());
    constexpr std::size_t pages = 64, page_bytes = 4096;
    return random() % pages * page_bytes;
  }
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::size_t size_ = 0;
  std::size_t skipped_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

/// Measures `work`, which moves `bytes`, on all threads of the team at the same time. Its argument is the thread's
/// index. Returns the slowest thread's rate, in GB/s.
double rate_of(Team& team, std::size_t bytes, int times, const std::function<void(int)>& work);

}  // namespace strait::doctor
