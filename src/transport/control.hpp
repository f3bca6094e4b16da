#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/link.hpp"

/// The words that all ranks of a communicator on one host see: the abort flag, the first error, and what each rank
/// called last. Plain data in shared memory; zero is the valid initial state. communicator/watch.cpp reads and writes
/// it.
namespace strait {

inline constexpr std::size_t cache_line_bytes = 64;
inline constexpr std::size_t posted_calls = 16;  ///< history a rank keeps, so that ranks a few calls apart can compare

/// A call as its rank posted it. `sequence` is written last: a reader that sees it sees the rest.
struct alignas(cache_line_bytes) PostedCall {
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> what{0};
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> input{0};  ///< address or heap offset, for peers that can use it
  std::atomic<std::uint64_t> output{0};
};

struct alignas(cache_line_bytes) RankControl {
  std::atomic<std::uint32_t> left{0};  ///< this rank destroyed its communicator
  std::array<PostedCall, posted_calls> calls;
};

/// The first error of the communicator. Whoever moves `state` from 0 to 1 writes it, then sets Control::abort.
struct alignas(cache_line_bytes) ErrorRecord {
  std::atomic<std::uint32_t> state{0};
  std::uint32_t code = 0;
  char message[1016] = {};
};

struct Control {
  alignas(cache_line_bytes) std::atomic<std::uint32_t> abort{0};  ///< nonzero: `error` is written, every wait ends
  ErrorRecord error;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "atomics in memory shared between processes must not hide locks");

}  // namespace strait
