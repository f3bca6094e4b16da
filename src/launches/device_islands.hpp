#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "calls/call.hpp"
#include "launches/islands.hpp"

namespace strait {

/// A call that some of the ranks make among themselves, in which ranks are counted as `among` says.
struct IslandStep {
  enum class Among : std::uint8_t {
    island,  ///< this rank's island, in rank order; of averages and premul_sum the step adds up
    across,  ///< one rank of each island, as the islands are counted; an average divides by all ranks. In the call's
             ///< wire format, if it has one
    all      ///< the communicator
  };
  Among among = Among::island;
  Call call;
  /// Of a long call across islands that is made in parts, with the steps that make its input ready between them: what
  /// the step has are `call.count` elements from `first` on of each block of `whole`. All parts but the last one have
  /// `each`, a multiple of parts_grain grains. Whoever has no use for that makes each part by itself. whole == 0: the
  /// call is whole.
  struct Part {
    std::size_t first = 0, each = 0, whole = 0;
  };
  Part part;
  static constexpr std::size_t parts_grain = 16;
};

/// How GPU ranks carry calls out where their islands reach one another through host memory only: first within the
/// islands, so that each byte crosses once an island. A pure function of the call and of what all ranks know alike.
///
/// Islands of one size: a rank's share of the data crosses among the ranks of its place in their islands. Other
/// islands: all that crosses goes through the first rank of each. Both have the bits of the plan `hierarchical`: sums
/// are taken within the island in rank order, rounded to elements, and then taken in the order of the islands and
/// rounded again, at every size of message. Where each island is one rank, calls cross as they are, but for those with
/// scalars. Of a reduction in a wire format, the islands' sums are what is encoded and crosses. What goes from rank to
/// rank crosses, whatever the islands' sizes, from the rank that has it to the one that needs it.
class DeviceIslands {
 public:
  /// This device's scratch.
  static constexpr std::size_t scratch_bytes = std::size_t{8} << 20;

  DeviceIslands() = default;
  /// `scratch`: `size_bytes` of this device's memory, aligned to 16 bytes; at least 64 KB for each island. Longer calls
  /// take several turns.
  DeviceIslands(std::uint32_t rank, std::vector<Island> islands, std::byte* scratch, std::size_t size_bytes);

  /// Whether the call goes this way; all others go to all ranks at once. Depends on the size only where that changes no
  /// bits.
  bool carries(const Call& call) const;
  /// This rank's part, in order; `call` is one that it carries.
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
  /// How many elements each rank of an island takes of so many, if anything is gained by that; the rest is for all.
  std::size_t share_of(std::size_t elements, DataType type) const;
  /// Whether blocks of so many elements, one for each rank, are together so long that a launch more pays.
  bool is_long_block(std::size_t elements, DataType type) const;
  /// The ranks' blocks, by place in this island and by island: where they begin in a buffer with a block of `block`
  /// elements for every rank.
  std::vector<std::size_t> places_in(std::uint32_t island, std::size_t block) const;
  std::vector<std::size_t> places_across(std::size_t block) const;
  bool is_alone() const { return islands_[island_].size() == 1; }
  /// Where the ranks' blocks are in the order of the islands: of so many of them.
  std::size_t blocks_before(std::size_t island) const;
  std::size_t most_ranks() const;  ///< of an island

  /// Ranks that follow one another and are of one island: what they have lies together.
  struct Run {
    std::uint32_t island = 0, first = 0, ranks = 0;
  };
  std::vector<Run> runs_;

  std::uint32_t rank_ = 0;
  std::vector<Island> islands_;
  std::uint32_t island_ = 0;  ///< this rank's
  std::uint32_t place_ = 0;   ///< in it
  bool alike_ = false;
  std::size_t ranks_ = 0;  ///< of all islands
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace strait
