#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "perf/data.hpp"

/// The calls that the hunt makes. They follow from the seed and the number of a batch, so any batch can be repeated.
namespace strait::race {

/// Pseudo-random numbers that follow from a seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }
  bool one_in(std::uint64_t chances) { return below(chances) == 0; }

 private:
  std::uint64_t state_;
};
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

struct Limits {
  std::uint32_t ranks = 2;
  std::uint32_t streams = 3;
  bool graphs = true;                            ///< capture some calls and replay them
  std::size_t max_bytes = std::size_t{1} << 20;  ///< size of a call's larger buffer, approximately
};
constexpr std::size_t most_together = 4;  ///< most calls in a group
constexpr std::size_t most_extra = 20;    ///< most elements beyond those that the size in bytes gives
constexpr std::uint32_t most_skew = 16;   ///< most elements by which a buffer is offset in its memory
constexpr std::uint32_t steps_of_batch = 16;

/// One call, without the rank that makes it (Operation::rank).
struct HuntedCall {
  perf::Operation operation;
  std::size_t first = 0;   ///< first element of the tables (tables.hpp) that its inputs use
  std::uint32_t skew = 0;  ///< offset of its buffer, elements
};

/// What is enqueued at once: one call, or a group of several.
struct Step {
  std::uint32_t stream = 0;
  std::vector<HuntedCall> calls;
};

/// `captured` is captured in a graph on `graph_stream`, which is launched before some of the eager steps.
struct Batch {
  std::vector<Step> captured;
  std::uint32_t graph_stream = 0;
  std::vector<Step> eager;
  std::vector<std::size_t> launches;  ///< the eager steps before which the graph is launched; ascending
  std::size_t calls() const;
};

Batch make_batch(std::uint64_t seed, std::uint64_t number, const Limits& limits);

/// Return the size of a table, and of a call's buffer with its guards, in bytes.
std::size_t table_bytes(const Limits& limits);
std::size_t buffer_bytes(const Limits& limits);

std::string describe(const HuntedCall& call);

}  // namespace strait::race
