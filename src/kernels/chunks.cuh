#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/launch.hpp"
#include "kernels/primitives.cuh"

/// Which chunk a lane moves in a round of an Exchange or a TwoHop (launch.hpp).
///
/// With two hops, the rounds of a lane overlap: while round t is contributed, round t - 1 is reduced and round t - 2 is
/// received, so no step waits for a message that its peer has only just begun to send. (A single round has nothing to
/// overlap with.)
///
/// Between two ranks, slots are used in the order contribution(0), contribution(1), result(0), contribution(2),
/// result(1)..., which writer and reader count alike. Four slots hold what an iteration and the next one write.
namespace strait::kernels {

/// Returns the length of the chunk that chunk_at() names, and sets its `offset`.
__device__ __forceinline__ std::uint32_t chunk_of(const Message& message, std::uint32_t lane, std::uint32_t round,
                                                  std::size_t& offset) {
  const Chunk chunk = chunk_at(message, lane, round);
  offset = chunk.offset;
  return chunk.bytes;
}

__device__ __forceinline__ bool has(std::uint32_t set, std::uint32_t rank) { return (set >> rank & 1) != 0; }

/// Returns the length of a lane's chunk in a round of `owner`'s slice, and sets its `offset` in the message. Negative
/// rounds have no chunk.
__device__ __forceinline__ std::uint32_t slice_chunk_of(const TwoHop& call, std::uint32_t lane, std::uint32_t owner,
                                                        int round, std::size_t& offset) {
  if (!has(call.owners, owner)) return 0;
  const std::uint32_t before =
      has(call.first_owners, owner) ? call.first_owners & ((1u << owner) - 1) : call.first_owners;
  const std::size_t begin = __popc(before) * call.slice_bytes;
  if (round < 0 || begin >= call.bytes) return 0;
  const std::size_t left = call.bytes - begin;
  const Message slice{nullptr, left < call.slice_bytes ? left : call.slice_bytes, call.chunk_bytes, call.lanes, 0};
  const std::uint32_t bytes = chunk_of(slice, lane, static_cast<std::uint32_t>(round), offset);
  offset += begin;
  return bytes;
}

}  // namespace strait::kernels
