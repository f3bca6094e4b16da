#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/lane.cuh"
#include "kernels/receive.cuh"

/// Litmus tests of what the kernels' protocols require of the memory system, with the kernels' own primitives, policies
/// and functions. One block writes slots; another block, mostly on another GPU, reads them. What it takes must belong
/// to exactly the use of the slot that it waited for: neither older (data later than its flag) nor newer (overwritten
/// before it was read).
namespace strait::testing {

using kernels::Granule;

/// What a control leaves out or reorders, to see whether the test would notice.
enum class Weakness : std::uint8_t {
  none,
  no_fence,     ///< no fence between the data and the flag of a bulk slot
  no_acquire,   ///< the flag of a bulk slot is read by a relaxed load
  split,        ///< lines and packets are written by two stores instead of one
  flag_first,   ///< the flag is written first, then after a pause the data
  return_first  ///< a bulk slot is given back first, and after a pause it is read
};

/// What the blocks of one GPU have seen. In that GPU's memory.
struct Tally {
  unsigned long long checked;      ///< granules compared
  unsigned long long stale;        ///< granules older than the flag that came with them
  unsigned long long overwritten;  ///< granules newer than that flag
  unsigned long long torn;         ///< granules of no single use
  unsigned long long stuck;        ///< blocks that gave up waiting
  unsigned long long apart_ns;     ///< how long the kernel waited for those of other GPUs to begin
};

/// The slots from one writing GPU to one reading GPU, at addresses that both use.
struct Channel {
  std::byte* slots;         ///< [lane][depth]
  std::uint64_t* flags;     ///< [lane][depth], for bulk slots
  std::uint64_t* returned;  ///< [lane]: number of slots given back
};

/// The argument of the kernels. Blocks [0, lanes) write, and as many more read.
struct Traffic {
  kernels::Ring ring;  ///< its mailbox, times and slot sizes are used; arenas are not
  Channel out, in;
  Tally* tally;
  std::uint64_t* begun;  ///< in host memory: for each GPU, whether its kernel has begun
  std::uint32_t gpus;
  std::uint32_t gpu;
  std::uint32_t lanes;
  std::uint32_t depth;         ///< slots per lane, a power of two
  std::uint32_t pieces;        ///< pieces per slot: a power of two, at most batch_size per warp
  std::uint32_t rounds;        ///< uses of each lane
  std::uint32_t stride;        ///< odd: spreads the pieces over the warps
  std::uint32_t pause_cycles;  ///< upper bound of the random pauses
  std::uint32_t seed;
  bool wipes;  ///< each slot is zeroed first, by threads other than those that fill it
};

constexpr std::uint32_t control_pause_cycles = 20'000;  ///< ten times as long as a store takes to arrive
constexpr std::uint16_t call_hash = 0x5a5b;

__device__ __forceinline__ std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

__device__ __forceinline__ void pause(std::uint32_t cycles) {
  const auto begin = clock64();
  while (clock64() - begin < cycles) continue;
}
/// Pauses at random, independently in each warp.
__device__ __forceinline__ void perhaps_pause(const Traffic& traffic, std::uint32_t round) {
  if (traffic.pause_cycles == 0) return;
  const std::uint32_t who = blockIdx.x << 8 | threadIdx.x / kernels::warp_threads;
  const std::uint32_t random = mixed(round * 0x9e3779b9u ^ who ^ traffic.seed);
  if (random % 4 == 0) pause((random >> 2) % traffic.pause_cycles);
}

/// Waits until the kernels of all GPUs have begun; called by all threads. How long that takes is not part of the test.
__device__ __forceinline__ void meet(const Traffic& traffic) {
  constexpr std::uint64_t most_ns = 60'000'000'000;
  if (threadIdx.x == 0) {
    const std::uint64_t began_ns = kernels::device_now_ns();
    if (blockIdx.x == 0) kernels::store_word(traffic.begun + traffic.gpu, 1);
    for (std::uint32_t gpu = 0; gpu < traffic.gpus; ++gpu)
      while (kernels::load_word(traffic.begun + gpu) == 0 && kernels::device_now_ns() - began_ns < most_ns) continue;
    if (blockIdx.x == 0) traffic.tally->apart_ns = kernels::device_now_ns() - began_ns;
  }
  __syncthreads();
}

/// Returns the value of a granule in a use of its slot: the use's number, and a hash of that and of the place.
__device__ __forceinline__ Granule datum(std::uint32_t round, std::uint32_t lane, std::uint32_t slot_offset) {
  const std::uint32_t hash = mixed(round * 0x9e3779b9u ^ lane << 24 ^ slot_offset);
  const std::uint64_t low = std::uint64_t{round} << 32 | hash;
  return {low, ~low};
}

/// Returns whether both words of a granule are data; in the last granule of a line only one is.
__device__ __forceinline__ bool has_high_word(const kernels::Place& place) { return place.valid > 8; }

/// Returns this thread's place in the piece that is its warp's `b`-th of a round.
template <class P>
__device__ __forceinline__ kernels::Place place_of(const Traffic& traffic, std::uint32_t round, std::uint32_t b) {
  const std::uint32_t number = threadIdx.x / kernels::warp_threads + b * (blockDim.x / kernels::warp_threads);
  if (number >= traffic.pieces) return {0, 0, 0, false};
  const std::uint32_t piece = (number * traffic.stride + round) % traffic.pieces;
  return P::place_of(piece, traffic.pieces * kernels::piece_data_bytes(P::protocol));
}

template <class P>
__device__ __forceinline__ kernels::Outgoing outgoing(const Traffic& traffic, std::uint32_t lane, std::uint32_t round) {
  const std::size_t slot = std::size_t{lane} * traffic.depth + (round & (traffic.depth - 1));
  return {nullptr, traffic.out.slots + slot * traffic.pieces * kernels::piece_bytes, traffic.out.flags + slot,
          P::flag(round, call_hash), traffic.pieces * kernels::piece_data_bytes(P::protocol)};
}
template <class P>
__device__ __forceinline__ kernels::Incoming incoming(const Traffic& traffic, std::uint32_t lane, std::uint32_t round) {
  const std::size_t slot = std::size_t{lane} * traffic.depth + (round & (traffic.depth - 1));
  return {traffic.in.slots + slot * traffic.pieces * kernels::piece_bytes,
          traffic.in.flags + slot,
          nullptr,
          P::flag(round, call_hash),
          traffic.pieces * kernels::piece_data_bytes(P::protocol),
          0};
}

/// Writes a granule by two stores instead of one.
template <class P>
__device__ __forceinline__ void send_split(std::byte* to, const Granule& value) {
  if constexpr (P::protocol == kernels::Protocol::packets) {
    auto* const words = reinterpret_cast<volatile std::uint64_t*>(to);
    words[1] = value.high;
    words[0] = value.low;
  } else {
    auto* const words = reinterpret_cast<std::uint64_t*>(to);
    kernels::store_word(words, value.low);
    kernels::store_word(words + 1, value.high);
  }
}

/// Fills this thread's part of a slot, in round `round`, with the data of use `of`.
template <class P, Weakness weakness>
__device__ __forceinline__ void fill(const Traffic& traffic, const kernels::Outgoing& chunk, std::uint32_t lane,
                                     std::uint32_t round, std::uint32_t of) {
#pragma unroll
  for (std::uint32_t b = 0; b < kernels::batch_size; ++b) {
    const kernels::Place place = place_of<P>(traffic, round, b);
    const Granule value = datum(of, lane, place.slot_offset);
    if (weakness != Weakness::split) {
      kernels::send<P>(chunk, place, value);
    } else {
      const Granule packed = P::packed(value, chunk.flag);
      if (place.active) send_split<P>(chunk.slot + place.slot_offset, packed);
    }
  }
}

/// Counts a block that gives up. Called by all of its threads.
__device__ __forceinline__ void give_up(const Traffic& traffic) {
  if (threadIdx.x == 0) atomicAdd(&traffic.tally->stuck, 1ull);
}

/// Waits for a free slot, as Lane::next_slot does, but with a configurable depth. Returns false if it gave up.
__device__ __forceinline__ bool await_room(const Traffic& traffic, std::uint32_t lane, std::uint32_t round,
                                           std::uint64_t& returned) {
  kernels::PollMonitor monitor;
  while (round >= returned + traffic.depth) {
    returned = kernels::load_word(traffic.out.returned + lane);
    if (round >= returned + traffic.depth && monitor.must_give_up(traffic.ring, 0, lane, true)) return false;
  }
  return true;
}

template <class P, Weakness weakness>
__device__ void write_slots(const Traffic& traffic, std::uint32_t lane) {
  std::uint64_t returned = 0;
  for (std::uint32_t round = 0; round < traffic.rounds; ++round) {
    const bool has_room = threadIdx.x != 0 || await_room(traffic, lane, round, returned);
    if (__syncthreads_or(!has_room) != 0) return give_up(traffic);
    const kernels::Outgoing chunk = outgoing<P>(traffic, lane, round);
    if (traffic.wipes) {
      kernels::wipe<P>(traffic.ring, &chunk, 1);
      __syncthreads();
    }
    perhaps_pause(traffic, round);
    if constexpr (weakness == Weakness::flag_first) {
      if constexpr (!P::flags_slots) fill<P, weakness>(traffic, chunk, lane, round, round - traffic.depth);
      if (P::flags_slots && threadIdx.x == 0) kernels::publish(chunk);
      __syncthreads();
      pause(control_pause_cycles);
    }
    fill<P, weakness>(traffic, chunk, lane, round, round);
    if constexpr (P::flags_slots && weakness != Weakness::flag_first) {
      __syncthreads();
      if (threadIdx.x == 0) {
        if constexpr (weakness != Weakness::no_fence) __threadfence_system();
        kernels::publish(chunk);
      }
    }
  }
}

/// Compares a granule taken in a round with what it must be, and counts it in `mine`.
template <class P>
__device__ __forceinline__ void examine(const Granule& got, const kernels::Place& place, std::uint32_t lane,
                                        std::uint32_t round, Tally& mine) {
  if (place.valid == 0) return;  // it carries upper words of the other packets, which compare those themselves
  const Granule expected = datum(round, lane, place.slot_offset);
  ++mine.checked;
  const bool low_differs = got.low != expected.low;
  if (!low_differs && (!has_high_word(place) || got.high == expected.high)) return;
  const auto seen = static_cast<std::uint32_t>((low_differs ? got.low : ~got.high) >> 32);
  if (seen == round) {
    ++mine.torn;
  } else if (seen - round < 1u << 31) {
    ++mine.overwritten;
  } else {
    ++mine.stale;
  }
}

__device__ __forceinline__ void add(Tally& all, const Tally& mine) {
  if (mine.checked != 0) atomicAdd(&all.checked, mine.checked);
  if (mine.stale != 0) atomicAdd(&all.stale, mine.stale);
  if (mine.overwritten != 0) atomicAdd(&all.overwritten, mine.overwritten);
  if (mine.torn != 0) atomicAdd(&all.torn, mine.torn);
}

template <Weakness weakness>
__device__ __forceinline__ bool await_flag(const Traffic& traffic, const kernels::Incoming& chunk) {
  if constexpr (weakness != Weakness::no_acquire) return kernels::wait_for_chunk(traffic.ring, chunk, blockIdx.x);
  kernels::PollMonitor monitor;
  while (kernels::load_word(chunk.slot_flag) != chunk.flag)
    if (monitor.must_give_up(traffic.ring, 0, blockIdx.x, false)) return false;
  return true;
}

/// Stores what was loaded, as kernels do before the barrier: a load whose value no flag comparison depends on may be
/// outstanding until then.
__device__ __forceinline__ void keep(const Granule (&values)[kernels::batch_size]) {
  __shared__ std::uint64_t kept[kernels::max_threads];
  volatile std::uint64_t& own = kept[threadIdx.x];
#pragma unroll
  for (const Granule& value : values) own = value.low ^ value.high;
}

template <class P, Weakness weakness>
__device__ void read_slots(const Traffic& traffic, std::uint32_t lane) {
  Tally mine{};
  bool gives_up = false;
  for (std::uint32_t round = 0; round < traffic.rounds && !gives_up; ++round) {
    const kernels::Incoming chunk = incoming<P>(traffic, lane, round);
    const bool has_come = !P::flags_slots || threadIdx.x != 0 || await_flag<weakness>(traffic, chunk);
    gives_up = __syncthreads_or(!has_come) != 0;
    if (gives_up) break;
    if constexpr (weakness == Weakness::return_first) {
      if (threadIdx.x == 0) kernels::store_word(traffic.in.returned + lane, round + 1);
      pause(control_pause_cycles);
    }
    perhaps_pause(traffic, ~round);
    kernels::Place places[kernels::batch_size];
    kernels::Awaited awaited[kernels::batch_size];
    Granule values[kernels::batch_size];
#pragma unroll
    for (std::uint32_t b = 0; b < kernels::batch_size; ++b) {
      places[b] = place_of<P>(traffic, round, b);
      awaited[b] = {places[b].active ? chunk.slot + places[b].slot_offset : nullptr, chunk.flag, 0};
    }
    const bool done = kernels::receive<P, true>(traffic.ring, awaited, values);
    if constexpr (P::flags_slots) keep(values);
    gives_up = __syncthreads_or(!done) != 0;
    if (gives_up) break;
    if (weakness != Weakness::return_first && threadIdx.x == 0) {
      kernels::store_word(traffic.in.returned + lane, round + 1);
    }
    // The data is examined only now, so that nothing except the barrier, and the flags or keep(), orders the loads
    // before the return of the slot.
#pragma unroll
    for (std::uint32_t b = 0; b < kernels::batch_size; ++b)
      if (places[b].active) examine<P>(values[b], places[b], lane, round, mine);
  }
  if (gives_up) give_up(traffic);
  add(*traffic.tally, mine);
}

/// Message passing through slots that are given back.
template <class P, Weakness weakness>
__global__ void __launch_bounds__(kernels::max_threads, 1) pass_messages(const __grid_constant__ Traffic traffic) {
  meet(traffic);
  if (blockIdx.x < traffic.lanes)
    write_slots<P, weakness>(traffic, blockIdx.x);
  else
    read_slots<P, weakness>(traffic, blockIdx.x - traffic.lanes);
}

/// Gets the use that a granule belongs to: by the flag of its line, or, as flags of packets hold only its last bits, by
/// the data of its packet. Returns false if nothing has been stored there yet.
template <class P>
__device__ __forceinline__ bool use_of(const Granule& got, const kernels::Place& place, std::uint32_t& round) {
  if constexpr (P::protocol == kernels::Protocol::lines) {
    const std::uint32_t bearer = threadIdx.x % kernels::warp_threads | (kernels::granules_per_line - 1);
    const std::uint64_t flag = __shfl_sync(0xffffffffu, static_cast<unsigned long long>(got.high), bearer);
    round = static_cast<std::uint32_t>(flag >> 16) - 1;
    return flag != 0;
  } else {
    const auto word = static_cast<std::uint32_t>(got.low >> 32);
    round = place.valid != 0 ? word : ~word;
    return got.high >> 32 != 0;
  }
}

/// Examines a line or packet that was loaded at an arbitrary moment: a line must hold no datum older than its flag, a
/// packet data and a flag of the same use.
template <class P>
__device__ __forceinline__ void examine_whole(const Granule& got, const kernels::Place& place, std::uint32_t lane,
                                              std::uint32_t round, Tally& mine) {
  if constexpr (P::protocol == kernels::Protocol::lines) return examine<P>(P::unpacked(got), place, lane, round, mine);
  ++mine.checked;
  const Granule own = datum(round, lane, place.slot_offset);
  const std::uint64_t rest = own.high >> 32;  // the same for all granules of a use
  const std::uint64_t low = place.valid != 0 ? own.low : rest | rest << 32;
  const std::uint64_t high = place.valid != 0 ? own.high & 0xffffffffu : rest;
  if (got.low != low || got.high != (high | P::flag(round, call_hash) << 32)) ++mine.torn;
}

/// The writer stores to the same places again and again, whether or not they have been read, and the reader polls them
/// all the time: lines and packets must be whole whenever they are read. For lines, `overwritten` is no violation here.
template <class P, Weakness weakness>
__global__ void __launch_bounds__(kernels::max_threads, 1) watch_stores(const __grid_constant__ Traffic traffic) {
  meet(traffic);
  if (blockIdx.x < traffic.lanes) {
    for (std::uint32_t round = 0; round < traffic.rounds; ++round) {
      const kernels::Outgoing chunk = outgoing<P>(traffic, blockIdx.x, round);
      perhaps_pause(traffic, round);
      if constexpr (weakness == Weakness::flag_first) {
        fill<P, weakness>(traffic, chunk, blockIdx.x, 0, round - 1);
        pause(control_pause_cycles);
      }
      fill<P, weakness>(traffic, chunk, blockIdx.x, 0, round);
    }
    return;
  }
  const std::uint32_t lane = blockIdx.x - traffic.lanes;
  const kernels::Place place = place_of<P>(traffic, 0, 0);
  const std::byte* const from = incoming<P>(traffic, lane, 0).slot + place.slot_offset;
  if (!place.active) return;  // whole warps return
  Tally mine{};
  kernels::PollMonitor monitor;
  std::uint32_t last = ~0u;
  Granule before{};
  for (bool gives_up = false; __any_sync(0xffffffffu, last != traffic.rounds - 1) != 0 && !gives_up;) {
    const Granule got = kernels::load_granule(from);
    std::uint32_t round = 0;
    const bool has_come = use_of<P>(got, place, round);
    const bool is_new = round != last || got.low != before.low || got.high != before.high;
    before = got;
    if (has_come && is_new) {
      last = round;
      monitor = {};  // host memory may be so slow to poll that all rounds take seconds: the deadline is for one round
      examine_whole<P>(got, place, lane, round, mine);
    }
    gives_up = __any_sync(0xffffffffu, monitor.must_give_up(traffic.ring, 0, lane, false)) != 0;
    if (gives_up && threadIdx.x % kernels::warp_threads == 0) atomicAdd(&traffic.tally->stuck, 1ull);
  }
  add(*traffic.tally, mine);
}

}  // namespace strait::testing
