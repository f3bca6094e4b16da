#pragma once

#include "kernels/bulk_exchange.cuh"
#include "kernels/bulk_two_hop.cuh"
#include "kernels/codec.cuh"

/// The kernels of EncodedExchange and EncodedTwoHop (launch.hpp): what goes into a slot is encoded on its way, and what
/// comes out of one is decoded, so that nothing is encoded in memory of its own, and links carry all the while. As
/// bulk_exchange.cuh and bulk_two_hop.cuh, but for what warps do with chunks.
namespace strait::kernels {

__device__ __forceinline__ std::uint32_t unit_bytes(const EncodedExchange& call) {
  return static_cast<std::uint32_t>(size_bytes(call.encoding.type));
}
__device__ __forceinline__ std::uint32_t unit_bytes(const EncodedTwoHop& call) {
  return static_cast<std::uint32_t>(size_bytes(call.encoding.type));
}

/// A run of a chunk.
struct Run {
  std::size_t elements;  ///< bytes from the beginning of the chunk in the user's memory
  std::uint32_t slot;    ///< likewise in a slot
  std::uint32_t valid;   ///< elements that exist
};

/// Deals the runs of several chunks to the warps of a block. A chunk begins with the warp after the one that ended the
/// last chunk.
template <WireFormat format>
class RunDealer {
 public:
  __device__ explicit RunDealer(const Encoding& encoding)
      : element_bytes_(static_cast<std::uint32_t>(size_bytes(encoding.type))), next_(threadIdx.x / warp_threads) {}
  /// Of a chunk of so many elements.
  template <class Body>
  __device__ __forceinline__ void deal(std::uint32_t elements, Body&& body) {
    constexpr std::uint32_t in_run = wire::granular_run_elements;
    const std::uint32_t runs = (elements + in_run - 1) / in_run;
    for (; next_ < runs; next_ += blockDim.x / warp_threads) {
      const std::uint32_t left = elements - next_ * in_run;
      body(Run{std::size_t{next_} * in_run * element_bytes_, next_ * RunLane<format>::run_bytes,
               left < in_run ? left : in_run});
    }
    next_ -= runs;
  }

 private:
  const std::uint32_t element_bytes_;
  std::uint32_t next_;  ///< run of this warp, counted from the beginning of the chunk
};

/// What a launch does with runs.
template <WireFormat format, class Call>
class Coder {
 public:
  using Codes = LaneCodes<format>;
  __device__ explicit Coder(const Call& call) : call_(call) {}

  /// Sends `count` chunks.
  __device__ __forceinline__ void send(const Outgoing* chunks, std::uint32_t count) const {
    RunDealer<format> dealer(call_.encoding);
    for (std::uint32_t i = 0; i < count; ++i) {
      const Outgoing& chunk = chunks[i];
      dealer.deal(chunk.bytes, [&](const Run& run) {
        lane_.write(chunk.slot + run.slot, contribution(chunk.source + run.elements, run.valid));
      });
    }
  }
  /// Takes `count` chunks to where they belong.
  __device__ __forceinline__ void take(const Incoming* chunks, std::uint32_t count) const {
    RunDealer<format> dealer(call_.encoding);
    for (std::uint32_t i = 0; i < count; ++i) {
      const Incoming& chunk = chunks[i];
      dealer.deal(chunk.bytes, [&](const Run& run) {
        keep(lane_.read(chunk.slot + run.slot), chunk.destination + run.elements, run.valid);
      });
    }
  }
  /// What a rank keeps of its own, on each of the block's lanes.
  __device__ __forceinline__ void take_own(const Own* own) const {
    RunDealer<format> dealer(call_.encoding);
    for (std::uint32_t nth = 0; nth < call_.width; ++nth)
      dealer.deal(own[nth].bytes, [&](const Run& run) {
        keep(contribution(own[nth].input + run.elements, run.valid), own[nth].output + run.elements, run.valid);
      });
  }
  /// Adds up what all ranks contribute to this rank's own part, on each of the block's lanes. `incoming`: by lane and
  /// position. `use(nth, run, sums)` takes the sums.
  template <class Use>
  __device__ __forceinline__ void sum(const Own* own, const Incoming* incoming, Use&& use) const {
    const Ring& ring = call_.ring;
    RunDealer<format> dealer(call_.encoding);
    for (std::uint32_t nth = 0; nth < call_.width; ++nth) {
      const Incoming* const chunks = incoming + nth * (ring.ranks - 1);
      dealer.deal(own[nth].bytes, [&](const Run& run) {
        const Codes mine = contribution(own[nth].input + run.elements, run.valid);
        float sums[lane_elements];
        for (std::uint32_t rank = 0; rank < ring.ranks; ++rank) {
          const Codes codes =
              rank == ring.rank ? mine : lane_.read(chunks[position_of(rank, ring.rank, ring.ranks)].slot + run.slot);
          add(codes, rank == 0, sums);
        }
        if (call_.op == ReduceOp::avg)
#pragma unroll
          for (int e = 0; e < lane_elements; ++e) sums[e] = spec::finish<ReduceOp::avg>(sums[e], ring.averaged);
        use(nth, run, sums);
      });
    }
  }
  __device__ __forceinline__ const RunLane<format>& lane() const { return lane_; }
  __device__ __forceinline__ void keep(const Codes& codes, std::byte* elements, std::uint32_t valid) const {
    float values[lane_elements];
    lane_.decode(codes, values);
    lane_.store(call_.encoding.type, elements, valid, values);
  }

 private:
  __device__ __forceinline__ Codes contribution(const std::byte* elements, std::uint32_t valid) const {
    return contribute(lane_, call_.encoding, call_.premul_scalar, elements, valid);
  }
  __device__ __forceinline__ static void add(const Codes& codes, bool is_first, float (&sums)[lane_elements]) {
#pragma unroll
    for (int e = 0; e < lane_elements; ++e) {
      const float value = codes.value(e);
      sums[e] = is_first ? value : spec::combine<ReduceOp::sum>(sums[e], value);
    }
  }
  const Call& call_;
  const RunLane<format> lane_;
};

template <WireFormat format>
__global__ void __launch_bounds__(max_threads, 1) encoded_exchange_copy(const __grid_constant__ EncodedExchange call) {
  auto& shared = shared_memory<BulkExchangeRound>();
  const Coder<format, EncodedExchange> coder(call);
  const auto send = [&](std::uint32_t count) { coder.send(shared.outgoing, count); };
  run_bulk_exchange(call, shared, send, [&] {
    coder.take_own(shared.own);
    coder.take(shared.incoming, call.width * (call.ring.ranks - 1));
    return true;
  });
}

template <WireFormat format>
__global__ void __launch_bounds__(max_threads, 1) encoded_exchange_sum(const __grid_constant__ EncodedExchange call) {
  auto& shared = shared_memory<BulkExchangeRound>();
  const Coder<format, EncodedExchange> coder(call);
  const auto send = [&](std::uint32_t count) { coder.send(shared.outgoing, count); };
  run_bulk_exchange(call, shared, send, [&] {
    coder.sum(shared.own, shared.incoming, [&](std::uint32_t nth, const Run& run, const auto& sums) {
      coder.lane().store(call.encoding.type, shared.own[nth].output + run.elements, run.valid, sums);
    });
    return true;
  });
}

/// An all-reduce: all ranks keep what is sent of the sum, the one that took it too.
template <WireFormat format>
__global__ void __launch_bounds__(max_threads, 1) encoded_two_hop_sum(const __grid_constant__ EncodedTwoHop call) {
  auto& shared = shared_memory<BulkTwoHopRound>();
  const Coder<format, EncodedTwoHop> coder(call);
  const std::uint32_t peers = call.ring.ranks - 1, chunks = peers * call.width;
  const auto reduce = [&] {
    coder.sum(shared.own, shared.contributions_in, [&](std::uint32_t nth, const Run& run, const auto& sums) {
      const LaneCodes<format> codes = coder.lane().encode(sums);
      const Outgoing* const results = shared.results_out + nth * peers;
      for (std::uint32_t k = 0; k < peers; ++k)
        if (results[k].bytes != 0) coder.lane().write(results[k].slot + run.slot, codes);
      coder.keep(codes, shared.own[nth].output + run.elements, run.valid);
    });
    return true;
  };
  run_bulk_two_hop(
      call, shared, [&] { coder.send(shared.contributions_out, chunks); }, reduce,
      [&] { coder.take(shared.results_in, chunks); });
}

}  // namespace strait::kernels
