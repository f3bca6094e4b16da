#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.hpp"

/// What a size in bytes means for each collective: nccl-tests' conventions, so that numbers compare.
namespace strait::perf {

/// One call of a collective, as one rank makes it. Counts and offsets are elements.
struct Geometry {
  std::size_t count = 0;           ///< the call's count argument
  std::size_t send_count = 0;      ///< length of the send buffer
  std::size_t receive_count = 0;   ///< length of the receive buffer
  std::size_t send_offset = 0;     ///< in place: where the send buffer starts in the one buffer
  std::size_t receive_offset = 0;  ///< in place: where the receive buffer starts in it
  bool has_in_place = true;

  std::size_t buffer_count() const { return send_count > receive_count ? send_count : receive_count; }
};

/// `extra_elements` come on top of the count that follows from the bytes.
Geometry geometry(Collective collective, std::size_t bytes, DataType type, std::uint32_t ranks, std::uint32_t rank,
                  std::size_t extra_elements = 0);

/// The bytes that the algorithm bandwidth counts.
std::size_t algorithm_bytes(Collective collective, const Geometry& g, DataType type, std::uint32_t ranks);
/// Bus bandwidth over algorithm bandwidth: what the busiest link of an ideal machine carries.
double bus_factor(Collective collective, std::uint32_t ranks);

/// All-to-all-v as we measure it: the further the peer (rank + distance), the larger its block; nothing to oneself.
/// Each rank sends and receives the same total.
std::size_t block_count(std::size_t total_count, DataType type, std::uint32_t ranks, std::uint32_t distance);

/// The counts and offsets of one rank's all-to-all-v.
struct Blocks {
  std::vector<std::size_t> send_counts, send_offsets, receive_counts, receive_offsets;
};
Blocks all_to_all_v_blocks(std::size_t total_count, DataType type, std::uint32_t ranks, std::uint32_t rank);

}  // namespace strait::perf
