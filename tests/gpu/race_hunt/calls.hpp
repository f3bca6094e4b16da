#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "perf/data.hpp"

/// Which calls the hunt makes: decided by seed and batch alone, so that any batch can be made again.
namespace strait::race {

/// Numbers that follow from a seed.
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
  bool graphs = true;                            ///< some calls are recorded and replayed
  std::size_t max_bytes = std::size_t{1} << 20;  ///< of a call's larger buffer, about
};
constexpr std::size_t most_together = 4;  ///< calls of a group
constexpr std::size_t most_extra = 20;    ///< elements beyond what the bytes give
constexpr std::uint32_t most_skew = 16;   ///< elements by which a buffer begins later than its memory
constexpr std::uint32_t steps_of_batch = 16;

/// One call, but for whose it is (Operation::rank).
struct HuntedCall {
  perf::Operation operation;
  std::size_t first = 0;   ///< element of the tables (tables.hpp) where its inputs begin
  std::uint32_t skew = 0;  ///< of its buffer, elements
};

/// What is enqueued at once: a call, or a group of several.
struct Step {
  std::uint32_t stream = 0;
  std::vector<HuntedCall> calls;
};

/// `captured` is recorded into a graph on `graph_stream`, which is then launched before some of the other steps.
struct Batch {
  std::vector<Step> captured;
  std::uint32_t graph_stream = 0;
  std::vector<Step> eager;
  std::vector<std::size_t> launches;  ///< before which eager step; ascending
  std::size_t calls() const;
};

Batch make_batch(std::uint64_t seed, std::uint64_t number, const Limits& limits);

/// Bytes of a table, and of a call's buffer with its guards.
std::size_t table_bytes(const Limits& limits);
std::size_t buffer_bytes(const Limits& limits);

std::string describe(const HuntedCall& call);

}  // namespace strait::race
