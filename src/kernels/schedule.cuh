#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/chunks.cuh"
#include "kernels/lane.cuh"

/// What an Exchange or a TwoHop (launch.hpp) moves in each iteration, in the form in which piped kernels ask for it.
/// The contributions of round t of an owner's part are sent in iteration t, its results in iteration t + 1. Within an
/// iteration a contribution precedes a result, in the order of a lane's slots.
namespace strait::kernels {

struct Part {
  std::byte* data;  ///< null if only the length matters
  std::uint32_t bytes;
};

/// `reduces`: received data is added up. Otherwise it is copied to its destination in its own iteration, as a result
/// is.
template <bool reduces>
class ExchangeSchedule {
 public:
  __device__ explicit ExchangeSchedule(const Exchange& call) : call_(call) {}
  __device__ const Ring& ring() const { return call_.ring; }
  __device__ std::uint32_t width() const { return call_.width; }
  __device__ std::uint32_t iterations() const { return call_.rounds; }
  __device__ std::uint16_t hash_to(std::uint32_t peer) const { return call_.send[peer].call_hash; }
  __device__ std::uint16_t hash_from(std::uint32_t peer) const { return call_.receive[peer].call_hash; }

  __device__ Part contribution_to(std::uint32_t peer, std::uint32_t lane, std::uint32_t iteration) const {
    return part_of(call_.send[peer], lane, iteration);
  }
  __device__ std::uint32_t result_to(std::uint32_t /*peer*/, std::uint32_t /*lane*/,
                                     std::uint32_t /*iteration*/) const {
    return 0;
  }
  __device__ std::uint32_t contribution_from(std::uint32_t peer, std::uint32_t lane, std::uint32_t iteration) const {
    return reduces ? part_of(call_.receive[peer], lane, iteration).bytes : 0;
  }
  __device__ Part result_from(std::uint32_t peer, std::uint32_t lane, std::uint32_t iteration) const {
    return reduces ? Part{nullptr, 0} : part_of(call_.receive[peer], lane, iteration);
  }
  /// Returns the set of ranks that contribute to each owner's part.
  __device__ std::uint32_t contributors() const { return (1u << call_.ring.ranks) - 1; }
  /// Returns this rank's own part, which it reduces or copies.
  __device__ OwnPart own(std::uint32_t lane, std::uint32_t round) const {
    const std::uint32_t rank = call_.ring.rank;
    const Part to = part_of(call_.receive[rank], lane, round);
    return {part_of(call_.send[rank], lane, round).data, to.data, to.bytes};
  }
  __device__ bool keeps() const { return true; }
  __device__ bool yields() const { return false; }
  /// Returns whether received data overwrites data that is sent. It must then not be stored before the latter has been
  /// read.
  __device__ bool overwrites_input() const {
    bool overwrites = false;
    for (std::uint32_t peer = 0; peer < call_.ring.ranks; ++peer)
      overwrites |= peer != call_.ring.rank && call_.receive[peer].bytes != 0 &&
                    call_.send[peer].data == call_.receive[peer].data;
    return overwrites;
  }

 private:
  static __device__ Part part_of(const Message& message, std::uint32_t lane, std::uint32_t round) {
    std::size_t offset = 0;
    const std::uint32_t bytes = chunk_of(message, lane, round, offset);
    return {message.data + offset, bytes};
  }
  const Exchange& call_;
};

class TwoHopSchedule {
  static constexpr std::uint32_t least_yielding_blocks = 32;

 public:
  __device__ explicit TwoHopSchedule(const TwoHop& call) : call_(call) {}
  __device__ const Ring& ring() const { return call_.ring; }
  __device__ std::uint32_t width() const { return call_.width; }
  __device__ std::uint32_t iterations() const { return call_.rounds + 1; }
  __device__ std::uint16_t hash_to(std::uint32_t /*peer*/) const { return call_.call_hash; }
  __device__ std::uint16_t hash_from(std::uint32_t /*peer*/) const { return call_.call_hash; }

  __device__ Part contribution_to(std::uint32_t peer, std::uint32_t lane, std::uint32_t iteration) const {
    if (!has(call_.contributors, call_.ring.rank)) return {nullptr, 0};
    std::size_t offset = 0;
    const std::uint32_t bytes = slice_chunk_of(call_, lane, peer, static_cast<int>(iteration), offset);
    return {const_cast<std::byte*>(call_.input) + offset, bytes};
  }
  __device__ std::uint32_t result_to(std::uint32_t peer, std::uint32_t lane, std::uint32_t iteration) const {
    std::size_t offset = 0;
    return has(call_.receivers, peer)
               ? slice_chunk_of(call_, lane, call_.ring.rank, static_cast<int>(iteration) - 1, offset)
               : 0;
  }
  __device__ std::uint32_t contribution_from(std::uint32_t peer, std::uint32_t lane, std::uint32_t iteration) const {
    std::size_t offset = 0;
    return has(call_.contributors, peer)
               ? slice_chunk_of(call_, lane, call_.ring.rank, static_cast<int>(iteration), offset)
               : 0;
  }
  __device__ Part result_from(std::uint32_t peer, std::uint32_t lane, std::uint32_t iteration) const {
    if (!has(call_.receivers, call_.ring.rank)) return {nullptr, 0};
    std::size_t offset = 0;
    const std::uint32_t bytes = slice_chunk_of(call_, lane, peer, static_cast<int>(iteration) - 1, offset);
    return {call_.output + offset, bytes};
  }
  __device__ std::uint32_t contributors() const { return call_.contributors; }
  __device__ OwnPart own(std::uint32_t lane, std::uint32_t round) const {
    std::size_t offset = 0;
    const std::uint32_t bytes = slice_chunk_of(call_, lane, call_.ring.rank, static_cast<int>(round), offset);
    return {call_.input + offset, call_.output + offset, bytes};
  }
  __device__ bool keeps() const { return has(call_.receivers, call_.ring.rank); }
  /// Returns whether contributions give way to results. The results of a reduce all go to one rank. Its link would have
  /// little to carry until contributions have run ahead by as many rounds as there are slots (3% of the time of 256 MB,
  /// four H200). With few blocks contributions do not give way: these need the full output rate of their SMs to fill
  /// the links (16 blocks take 7% longer if they do).
  __device__ bool yields() const {
    return __popc(call_.receivers) == 1 && __popc(call_.contributors) > 1 && !keeps() &&
           gridDim.x >= least_yielding_blocks;
  }
  /// A result arrives only after everything that it is computed from has been read.
  __device__ bool overwrites_input() const { return false; }

 private:
  const TwoHop& call_;
};

}  // namespace strait::kernels
