#include "base/forks.hpp"

#include <pthread.h>

#include <atomic>

namespace strait {

std::uint32_t fork_generation() noexcept {
  static std::atomic<std::uint32_t> generation{0};
  [[maybe_unused]] static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  return generation.load(std::memory_order_relaxed);
}

}  // namespace strait
