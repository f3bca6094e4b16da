#pragma once

#include "kernels/bulk_exchange.cuh"
#include "kernels/bulk_two_hop.cuh"
#include "kernels/codec.cuh"

/// The kernels of EncodedExchange and EncodedTwoHop (launch.hpp). Data is encoded as it goes into a slot, and decoded
/// as it comes out of one, so no separate memory is needed for encoded data, and links are busy all the time. They
/// differ from bulk_exchange.cuh and bulk_two_hop.cuh only in what warps do with chunks.
namespace strait::kernels {

__device__ __forceinline__ std::uint32_t unit_bytes(const EncodedExchange& call) { return call.encoding.element_bytes; }
__device__ __forceinline__ std::uint32_t unit_bytes(const EncodedTwoHop& call) { return call.encoding.element_bytes; }

/// The runs of a chunk with this many elements.
struct Runs {
  std::uint32_t elements;

  __device__ __forceinline__ std::uint32_t count() const {
    return (elements + wire::granular_run_elements - 1) / wire::granular_run_elements;
  }
  /// Returns how many elements of a run exist.
  __device__ __forceinline__ std::uint32_t valid(std::uint32_t run) const {
    const std::uint32_t left = elements - run * wire::granular_run_elements;
    return left < wire::granular_run_elements ? left : wire::granular_run_elements;
  }
  /// Returns whether a run is whole and aligned like granules.
  __device__ __forceinline__ bool is_granules(std::uint32_t run, const std::byte* at) const {
    return valid(run) == wire::granular_run_elements && are_granules(0, at);
  }
};

/// Deals the runs of several chunks to the warps of a block. The first run of a chunk goes to the warp after the one
/// that got the last run of the previous chunk.
class RunDealer {
 public:
  __device__ RunDealer() : warps_(blockDim.x / warp_threads), next_(threadIdx.x / warp_threads) {}
  /// Calls use(run, load(run)) for each run of this warp. While one run is used, the next `ahead` runs are being
  /// loaded, because a load takes most of the time.
  template <int ahead, class Load, class Use>
  __device__ __forceinline__ void deal(std::uint32_t runs, Load&& load, Use&& use) {
    using Loaded = decltype(load(next_));
    Loaded loaded[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      if (next_ + i * warps_ < runs) loaded[i] = load(next_ + i * warps_);
#pragma unroll 1
    for (; next_ < runs; next_ += warps_) {
      const Loaded now = loaded[0];
#pragma unroll
      for (int i = 1; i < ahead; ++i) loaded[i - 1] = loaded[i];
      if (next_ + ahead * warps_ < runs) loaded[ahead - 1] = load(next_ + ahead * warps_);
      use(next_, now);
    }
    next_ -= runs;
  }

 private:
  const std::uint32_t warps_;
  std::uint32_t next_;  ///< next run of this warp, counted from the beginning of the chunk
};

/// What a launch does with runs.
template <WireFormat format, DataType type, class Call>
class Coder {
 public:
  using RunOf = RunLane<format, type>;
  using Codes = typename RunOf::Codes;
  __device__ explicit Coder(const Call& call) : call_(call) {}

  /// Sends `count` chunks. `own`: if not null, this rank keeps what it sends as well, at `own` plus the chunk's offset
  /// from `input`.
  __device__ __forceinline__ void send(const Outgoing* chunks, std::uint32_t count, std::byte* own = nullptr,
                                       const std::byte* input = nullptr) const {
    RunDealer dealer;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Outgoing& chunk = chunks[i];
      const Runs runs{chunk.bytes};
      dealer.deal<sizeof(typename RunOf::Element) == 4 ? 1 : 2>(
          runs.count(), [&](std::uint32_t run) { return load(chunk.source, runs, run); },
          [&](std::uint32_t run, const Bits& bits) {
            const Codes codes = contribution(bits, chunk.source, runs, run);
            lane_.write(chunk.slot + run * RunOf::run_bytes, codes);
            if (own != nullptr) keep(codes, own + (chunk.source - input), runs, run);
          });
    }
  }
  /// Takes `count` chunks to where they belong.
  __device__ __forceinline__ void take(const Incoming* chunks, std::uint32_t count) const {
    RunDealer dealer;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Incoming& chunk = chunks[i];
      const Runs runs{chunk.bytes};
      dealer.deal<3>(
          runs.count(), [&](std::uint32_t run) { return lane_.read(chunk.slot + run * RunOf::run_bytes); },
          [&](std::uint32_t run, const Codes& codes) { keep(codes, chunk.destination, runs, run); });
    }
  }
  /// Stores what a rank keeps of its own data, on each of the block's lanes.
  __device__ __forceinline__ void take_own(const OwnPart* own) const {
    RunDealer dealer;
    for (std::uint32_t nth = 0; nth < call_.width; ++nth) {
      const OwnPart& mine = own[nth];
      const Runs runs{mine.bytes};
      dealer.deal<1>(
          runs.count(), [&](std::uint32_t run) { return load(mine.input, runs, run); },
          [&](std::uint32_t run, const Bits& bits) {
            keep(contribution(bits, mine.input, runs, run), mine.output, runs, run);
          });
    }
  }
  /// Adds up what all ranks contribute to this rank's own part, on each of the block's lanes. `incoming` is indexed by
  /// lane and position. `use(nth, runs, run, sums)` receives the sums of a run.
  template <class Use>
  __device__ __forceinline__ void sum(const OwnPart* own, const Incoming* incoming, Use&& use) const {
    RunDealer dealer;
    for (std::uint32_t nth = 0; nth < call_.width; ++nth) {
      const OwnPart& mine = own[nth];
      const Incoming* const chunks = incoming + nth * (call_.ring.ranks - 1);
      const Runs runs{mine.bytes};
      dealer.deal<1>(
          runs.count(),
          [&](std::uint32_t run) {
            Contributions all;
#pragma unroll
            for (std::uint32_t i = 0; i < loaded_peers; ++i)
              if (i + 1 < call_.ring.ranks) all.theirs[i] = lane_.read(chunks[i].slot + run * RunOf::run_bytes);
            all.mine = load(mine.input, runs, run);
            return all;
          },
          [&](std::uint32_t run, const Contributions& all) {
            const Codes own_codes = contribution(all.mine, mine.input, runs, run);
            float sums[lane_elements];
            add_up(own_codes, all, chunks, run, sums);
            use(nth, runs, run, sums);
          });
    }
  }

  __device__ __forceinline__ const RunOf& lane() const { return lane_; }
  /// Stores one of the runs that begin at `to`.
  __device__ __forceinline__ void store(const float (&values)[lane_elements], std::byte* to, const Runs& runs,
                                        std::uint32_t run) const {
    std::byte* const at = to + std::size_t{run} * RunOf::user_bytes;
    if (runs.is_granules(run, to)) return lane_.store(at, values);
    struct Values {
      float of_lane[lane_elements];
    } copy;
#pragma unroll
    for (int e = 0; e < lane_elements; ++e) copy.of_lane[e] = values[e];
    out_of_line([copy, at, valid = runs.valid(run)] { RunOf{}.store(at, valid, copy.of_lane); });
  }
  __device__ __forceinline__ void keep(const Codes& codes, std::byte* to, const Runs& runs, std::uint32_t run) const {
    if (runs.is_granules(run, to)) return lane_.store(to + std::size_t{run} * RunOf::user_bytes, codes);
    float values[lane_elements];
    codes.get(values);
    store(values, to, runs, run);
  }

 private:
  using Bits = typename RunOf::Bits;
  static constexpr std::uint32_t loaded_peers = 1;
  struct Contributions {
    Bits mine;
    Codes theirs[loaded_peers];  ///< of the first peers, by position
  };

  /// Returns whether this rank's contribution is loaded in advance, which is done where it is simple.
  __device__ __forceinline__ bool loads_early(const std::byte* source, const Runs& runs, std::uint32_t run) const {
    return runs.is_granules(run, source) && call_.encoding.residual == nullptr;
  }
  __device__ __forceinline__ Bits load(const std::byte* source, const Runs& runs, std::uint32_t run) const {
    return loads_early(source, runs, run) ? lane_.load(source + std::size_t{run} * RunOf::user_bytes) : Bits{};
  }
  /// Returns the codes of one of the runs that begin at `source`; `bits` is what load() returned for it.
  __device__ __forceinline__ Codes contribution(const Bits& bits, const std::byte* source, const Runs& runs,
                                                std::uint32_t run) const {
    if (!loads_early(source, runs, run)) {
      const std::byte* const elements = source + std::size_t{run} * RunOf::user_bytes;
      return out_of_line(
          [call = &call_, elements, valid = runs.valid(run)] { return any_contribution(*call, elements, valid); });
    }
    float values[lane_elements];
    lane_.widen(bits, values);
    if (call_.encoding.premultiplies) premultiply<type>(call_.premul_scalar, values);
    return Codes::of(values);
  }
  /// Returns the codes of any run, and updates its residual.
  __device__ static Codes any_contribution(const Call& call, const std::byte* elements, std::uint32_t valid) {
    const RunOf lane;
    float values[lane_elements];
    lane.load(elements, valid, values);
    if (call.encoding.premultiplies) premultiply<type>(call.premul_scalar, values);
    if (call.encoding.residual == nullptr) return Codes::of(values);
    const RunLane<format, DataType::float32> floats;
    const std::size_t first =
        static_cast<std::size_t>(elements - call.encoding.elements) / sizeof(typename RunOf::Element);
    auto* const residual = reinterpret_cast<std::byte*>(call.encoding.residual + first);
    float carried[lane_elements];
    floats.load(residual, valid, carried);
#pragma unroll
    for (int e = 0; e < lane_elements; ++e) values[e] = spec::detail::add(values[e], carried[e]);
    const Codes codes = Codes::of(values);
    float sent[lane_elements];
    codes.get(sent);
#pragma unroll
    for (int e = 0; e < lane_elements; ++e) carried[e] = spec::detail::add(values[e], -sent[e]);
    if (!is_nan(codes.scale)) floats.store(residual, valid, carried);
    return codes;
  }
  /// Adds up contributions in rank order.
  __device__ __forceinline__ void add_up(const Codes& own, const Contributions& all, const Incoming* chunks,
                                         std::uint32_t run, float (&sums)[lane_elements]) const {
    const Ring& ring = call_.ring;
#pragma unroll 1
    for (std::uint32_t rank = 0; rank < ring.ranks; ++rank) {
      Codes codes = own;
      if (rank != ring.rank) {
        const std::uint32_t position = position_of(rank, ring.rank, ring.ranks);
        codes = all.theirs[0];
#pragma unroll
        for (std::uint32_t i = 1; i < loaded_peers; ++i)
          if (position == i) codes = all.theirs[i];
        if (position >= loaded_peers) codes = lane_.read(chunks[position].slot + run * RunOf::run_bytes);
      }
      float values[lane_elements];
      codes.get(values);
#pragma unroll
      for (int e = 0; e < lane_elements; ++e) sums[e] = rank == 0 ? values[e] : spec::detail::add(sums[e], values[e]);
    }
    if (call_.op == ReduceOp::avg) divide(sums, ring.averaged);
  }
  const Call& call_;
  const RunOf lane_;
};

template <WireFormat format, DataType type>
__global__ void __launch_bounds__(max_threads, 1) encoded_exchange_copy(const __grid_constant__ EncodedExchange call) {
  auto& shared = shared_memory<BulkExchangeRound>();
  const Coder<format, type, EncodedExchange> coder(call);
  const std::uint32_t rank = call.ring.rank;
  const bool sends_own = call.cast == Cast::multi;
  const auto send = [&](std::uint32_t count) {
    coder.send(shared.outgoing, count, sends_own ? call.receive[rank].data : nullptr, call.send[rank].data);
  };
  run_bulk_exchange(call, shared, send, [&] {
    if (!sends_own) coder.take_own(shared.own);
    coder.take(shared.incoming, call.width * (call.ring.ranks - 1));
    return true;
  });
}

template <WireFormat format, DataType type>
__global__ void __launch_bounds__(max_threads, 1) encoded_exchange_sum(const __grid_constant__ EncodedExchange call) {
  auto& shared = shared_memory<BulkExchangeRound>();
  const Coder<format, type, EncodedExchange> coder(call);
  const auto send = [&](std::uint32_t count) { coder.send(shared.outgoing, count); };
  run_bulk_exchange(call, shared, send, [&] {
    coder.sum(shared.own, shared.incoming,
              [&](std::uint32_t nth, const Runs& runs, std::uint32_t run, const auto& sums) {
                coder.store(sums, shared.own[nth].output, runs, run);
              });
    return true;
  });
}

/// An all-reduce. All ranks keep the sum as it is sent (decoded from its codes), including the rank that computed it.
template <WireFormat format, DataType type>
__global__ void __launch_bounds__(max_threads, 1) encoded_two_hop_sum(const __grid_constant__ EncodedTwoHop call) {
  auto& shared = shared_memory<BulkTwoHopRound>();
  const Coder<format, type, EncodedTwoHop> coder(call);
  const std::uint32_t peers = call.ring.ranks - 1, chunks = peers * call.width;
  const auto reduce = [&] {
    coder.sum(shared.own, shared.contributions_in,
              [&](std::uint32_t nth, const Runs& runs, std::uint32_t run, const auto& sums) {
                const auto codes = RunLane<format, type>::Codes::of(sums);
                const Outgoing* const results = shared.results_out + nth * peers;
                for (std::uint32_t k = 0; k < peers; ++k)
                  if (results[k].bytes != 0)
                    coder.lane().write(results[k].slot + run * RunLane<format, type>::run_bytes, codes);
                coder.keep(codes, shared.own[nth].output, runs, run);
              });
    return true;
  };
  run_bulk_two_hop(
      call, shared, [&] { coder.send(shared.contributions_out, chunks); }, reduce,
      [&] { coder.take(shared.results_in, chunks); });
}

}  // namespace strait::kernels
