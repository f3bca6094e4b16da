#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "calls/call.hpp"
#include "launches/islands.hpp"

namespace strait {

/// A call among some of the ranks, which are numbered as `among` says.
struct IslandStep {
  enum class Among : std::uint8_t {
    /// This rank's island, in rank order. In this step an average only adds up; premul_sum multiplies by the scalars
    /// and adds up.
    island,
    /// One rank of each island, numbered as the islands are. An average divides by the number of all ranks. The step
    /// uses the call's wire format, if it has one.
    across,
    all  ///< the communicator
  };
  Among among = Among::island;
  Call call;
  /// A part of a long call across islands. Such a call is made in parts if other steps must first produce the input of
  /// each part. The step covers `call.count` elements of each block of `whole` elements, from element `first` on. All
  /// parts but the last have `each` elements, a multiple of parts_grain grains. An executor that has no use for this
  /// makes each part a call of its own. whole == 0: the step is a whole call.
  struct Part {
    std::size_t first = 0, each = 0, whole = 0;
  };
  Part part;
  static constexpr std::size_t parts_grain = 16;
};

/// Determines how GPU ranks carry out calls if their islands reach one another only through host memory: first within
/// the islands, so that each byte crosses once per island. A pure function of the call and of what all ranks know
/// alike.
///
/// If islands have the same size, each rank's share of the data crosses among the ranks with the same place in their
/// islands. Otherwise everything that crosses goes through the first rank of each island. Both give the bits of the
/// plan `hierarchical`: sums are taken within the island in rank order and rounded to elements, and then taken in the
/// order of the islands and rounded again, for messages of every size. If every island is a single rank, calls cross as
/// they are, except those with scalars. In a reduction with a wire format, the islands' sums are encoded and cross.
/// Data from rank to rank (exchanges) crosses directly from the rank that has it to the rank that needs it, whatever
/// the sizes of the islands.
class DeviceIslands {
 public:
  /// Size of the scratch in this device's memory.
  static constexpr std::size_t scratch_bytes = std::size_t{8} << 20;

  DeviceIslands() = default;
  /// `scratch`: `size_bytes` of this device's memory, aligned to 16 bytes, with at least 64 KB for each island. Calls
  /// for which it is too small take several turns.
  DeviceIslands(std::uint32_t rank, std::vector<Island> islands, std::byte* scratch, std::size_t size_bytes);

  /// Returns whether islands carry the call; all other calls go directly among all ranks. This depends on the size only
  /// if it makes no difference to the bits.
  bool carries(const Call& call) const;
  /// Returns this rank's steps, in order. carries(call) must hold.
  std::vector<IslandStep> steps_of(const Call& call) const;

 private:
  using Steps = std::vector<IslandStep>;
  bool crosses_whole(const Call& call) const;
  IslandStep whole_across(const Call& call) const;
  void all_reduce(const Call& call, Steps& steps) const;
  void reduce(const Call& call, Steps& steps) const;
  void reduce_scatter(const Call& call, Steps& steps) const;
  void all_gather(const Call& call, Steps& steps) const;
  void broadcast(const Call& call, Steps& steps) const;
  void exchange(const Call& call, Steps& steps) const;
  void exchange_lengths(const Call& call, Steps& steps) const;
  void all_reduce_in_wire_format(const Call& call, Steps& steps) const;
  void all_reduce_by_first_ranks(const Call& call, Steps& steps) const;
  void reduce_by_first_ranks(const Call& call, Steps& steps) const;
  void reduce_scatter_by_first_ranks(const Call& call, Steps& steps) const;
  void all_gather_by_first_ranks(const Call& call, Steps& steps) const;
  void broadcast_by_first_ranks(const Call& call, Steps& steps) const;
  /// Returns how many of `elements` elements each rank of an island takes as its share, or 0 if sharing gains nothing.
  /// Elements that no share contains are moved by every place.
  std::size_t share_of(std::size_t elements, DataType type) const;
  /// Returns whether blocks of `elements` elements, one for each rank, are long enough together to pay for another
  /// launch.
  bool is_long_block(std::size_t elements, DataType type) const;
  /// Return where blocks begin in a buffer that has a block of `block` elements for every rank: the blocks of an
  /// island's ranks, by place, and the blocks of the ranks that have this rank's place, by island.
  std::vector<std::size_t> places_in(std::uint32_t island, std::size_t block) const;
  std::vector<std::size_t> places_across(std::size_t block) const;
  bool is_alone() const { return islands_[island_].size() == 1; }
  /// Returns how many ranks the first `island` islands have together. If blocks are in the order of the islands, this
  /// is the index of the next island's first block.
  std::size_t blocks_before(std::size_t island) const;
  std::size_t most_ranks() const;  ///< size of the largest island

  /// Consecutive ranks of one island, whose blocks are contiguous.
  struct Run {
    std::uint32_t island = 0, first = 0, ranks = 0;
  };
  std::vector<Run> runs_;

  std::uint32_t rank_ = 0;
  std::vector<Island> islands_;
  std::uint32_t island_ = 0;  ///< number of this rank's island
  std::uint32_t place_ = 0;   ///< this rank's place in its island
  bool alike_ = false;
  std::size_t ranks_ = 0;  ///< ranks of all islands together
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace strait
