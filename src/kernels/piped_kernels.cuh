#pragma once

#include "kernels/piped.hpp"
#include "kernels/piped_adders.cuh"
#include "kernels/piped_movers.cuh"
#include "kernels/piped_reductions.cuh"

/// The kernels of Exchange and TwoHop (launch.hpp) in bulk through shared memory (piped.cuh), as a copy and as a
/// reduction for which is_piped_reduction() holds. Only through peers' memory, with buffers that begin at multiples of
/// 16 bytes, on GPUs from compute capability 9.0 on. A block has `piped_threads` threads.
namespace strait::kernels {

inline constexpr std::uint32_t pipe_kb = 1 << 10;
/// How the shared memory that an SM has for a block is divided. Each piece costs the thread that moves it 0.4 us; with
/// pieces of 24 KB a pipe moves as much as an SM can store. A set holds what all ranks contribute to a part.
using PipedCopyMemory = PipedMemory<PipeMemory<4, 24 * pipe_kb>, PipeMemory<4, 24 * pipe_kb>, SetsMemory<1, 16>>;
using PipedSumMemory = PipedMemory<PipeMemory<4, 16 * pipe_kb>, PipeMemory<2, 16>, SetsMemory<4, 32 * pipe_kb>>;
using PipedTwoHopMemory =
    PipedMemory<PipeMemory<4, 12 * pipe_kb>, PipeMemory<4, 12 * pipe_kb>, SetsMemory<3, 32 * pipe_kb>>;

enum class PipedRole : std::uint32_t { sender, receiver, fetcher, storer, flag_publisher, returner, adders };
static_assert(piped_mover_threads == static_cast<std::uint32_t>(PipedRole::adders) * warp_threads);

#ifndef STRAIT_EMULATED_GPU
inline constexpr std::size_t most_block_memory_bytes = 227 * pipe_kb;  ///< for compute capability 9.0 and 10.0
static_assert(sizeof(PipedCopyMemory) <= most_block_memory_bytes);
static_assert(sizeof(PipedSumMemory) <= most_block_memory_bytes);
static_assert(sizeof(PipedTwoHopMemory) <= most_block_memory_bytes);
#endif

/// Initializes a stream. Called by the thread with the stream's number.
template <class Schedule>
__device__ __forceinline__ void name_stream(const Schedule& schedule, std::uint32_t number, Stream& stream) {
  const Ring& ring = schedule.ring();
  const std::uint32_t peers = ring.ranks - 1, nth = number / peers, position = number % peers;
  const std::uint32_t ahead = ring.rank + 1 + position;
  stream.peer = ahead < ring.ranks ? ahead : ahead - ring.ranks;
  stream.lane = blockIdx.x + nth * gridDim.x;
  const LaneEnds out{ring.rank, stream.peer, Cast::single, stream.lane};
  const LaneEnds in{stream.peer, ring.rank, Cast::single, stream.lane};
  const LaneSlots<Bulk> out_slots(ring, out), in_slots(ring, in);
  stream.out_slots = out_slots.slots;
  stream.out_flags = out_slots.flags;
  stream.in_slots = in_slots.slots;
  stream.in_flags = in_slots.flags;
  stream.returned = returned_word<Bulk>(ring, out);
  stream.peers_returned = returned_word<Bulk>(ring, in);
  stream.counts = &ring.counts[lane_index(Protocol::bulk, Cast::single, stream.peer, stream.lane)];
  stream.hash_to = schedule.hash_to(stream.peer);
  stream.hash_from = schedule.hash_from(stream.peer);
}

/// As Lane::resume(), for a stream.
__device__ __forceinline__ bool resume(const Ring& ring, Stream& stream) {
  const LaneCounts counts = *stream.counts;
  if (counts.sent == gave_up || (ring.gave_up != nullptr && *ring.gave_up != 0)) return false;
  stream.sent = counts.sent;
  stream.taken = stream.returned_by_us = counts.taken;
  if (counts.returned_by_us != counts.taken) store_word(stream.peers_returned, counts.taken);
  return true;
}

/// As Lane::save(), for a stream.
template <class Memory>
__device__ __forceinline__ void save(const Ring& ring, const Memory& memory, std::uint32_t number) {
  const Stream& stream = memory.streams[number];
  const auto walked = [&](Walker walker) { return memory.walks[static_cast<std::uint32_t>(walker)][number]; };
  const bool gives_up = load_progress(memory.failed) != 0;
  *stream.counts = {gives_up ? gave_up : stream.sent + walked(Walker::contributed),
                    stream.taken + walked(Walker::returns), stream.returned_by_us, 0};
  if (gives_up && ring.gave_up != nullptr) *ring.gave_up = 1;
}

template <class Memory>
__device__ __forceinline__ void prepare_memory(Memory& memory, bool adds, std::uint32_t adders) {
  for (std::uint32_t i = threadIdx.x; i < max_streams; i += blockDim.x) {
    for (auto& walk : memory.walks) walk[i] = 0;
    for (auto& iterations : memory.iterations) iterations[i] = 0;
  }
  if (threadIdx.x != 0) return;
  using Sets = typename Memory::Sets;
  memory.failed = 0;
  Pipe<decltype(memory.sender)>::prepare(memory.sender);
  Pipe<decltype(memory.receiver)>::prepare(memory.receiver);
  memory.sets.fetched = memory.sets.written = adds ? 0 : ~0u;
  for (std::uint32_t at = 0; at < Sets::set_count; ++at) {
    prepare_barrier(memory.sets.full[at], 1);
    prepare_barrier(memory.sets.summed[at], adders / warp_threads);
    prepare_barrier(memory.sets.empty[at], 1);
  }
  fence_async_shared();
}

/// Copy what stays on this rank, which waits for no other rank.
__device__ __forceinline__ void copy_chunk(const std::byte* from, std::byte* to, std::uint32_t bytes,
                                           std::uint32_t thread, std::uint32_t threads) {
  constexpr std::uint32_t batch = 8;
  if (from == to) return;
  const std::uint32_t whole = bytes / 16 * 16, stride = threads * 16;
  for (std::uint32_t begin = thread * 16; begin < whole; begin += batch * stride) {
    Granule values[batch];
#pragma unroll
    for (std::uint32_t b = 0; b < batch; ++b)
      if (begin + b * stride < whole) values[b] = load_plain(from + begin + b * stride);
#pragma unroll
    for (std::uint32_t b = 0; b < batch; ++b)
      if (begin + b * stride < whole) store_plain(to + begin + b * stride, values[b]);
  }
  if (thread == 0 && whole != bytes) copy_tail(from + whole, to + whole, bytes - whole);
}
template <class Schedule>
__device__ __forceinline__ void copy_own(const Schedule& schedule, std::uint32_t thread, std::uint32_t threads) {
  for (std::uint32_t round = 0; round < schedule.iterations(); ++round)
    for (std::uint32_t nth = 0; nth < schedule.width(); ++nth) {
      const OwnPart own = schedule.own(blockIdx.x + nth * gridDim.x, round);
      copy_chunk(own.input, own.output, own.bytes, thread, threads);
    }
}
/// Threads that copy the own part of a broadcast's root. Half as many would keep the root from sending at the rate of
/// its link; twice as many gain nothing (4 H100).
inline constexpr std::uint32_t copying_threads = 8 * warp_threads;
/// On the root of a broadcast, copies to its output everything that it sends.
__device__ __forceinline__ void copy_sent(const TwoHop& call, std::uint32_t thread, std::uint32_t threads) {
  if (thread >= threads || !has(call.contributors, call.ring.rank)) return;
  const TwoHopSchedule schedule(call);
  for (std::uint32_t round = 0; round < schedule.iterations(); ++round)
    for (std::uint32_t nth = 0; nth < call.width; ++nth)
      for (std::uint32_t peer = 0; peer < call.ring.ranks; ++peer) {
        const Part part = schedule.contribution_to(peer, blockIdx.x + nth * gridDim.x, round);
        if (part.bytes != 0) copy_chunk(part.data, call.output + (part.data - call.input), part.bytes, thread, threads);
      }
}

/// In a broadcast the sum is the root's part itself, except for its last granule, which was not loaded. The root has
/// nothing to add.
struct OnlyPart {
  const TwoHop& call;
  __device__ void operator()(const Addends& addends, std::byte* to, std::uint32_t bytes, std::uint32_t thread,
                             std::uint32_t /*threads*/) const {
    const std::uint32_t whole = bytes / 16 * 16, root = static_cast<std::uint32_t>(__ffs(call.contributors) - 1);
    if (thread == 0 && whole != bytes)
      *reinterpret_cast<Granule*>(to + whole) = addends.last(root, whole, bytes - whole);
  }
};

/// `adds`: contributions to this rank's own part are added up by `sum`.
template <bool adds, class Schedule, class Memory, class Sum>
__device__ __forceinline__ void run_piped(const Schedule& schedule, Memory& memory, Sum&& sum) {
  const Ring& ring = schedule.ring();
  const std::uint32_t streams = (ring.ranks - 1) * schedule.width();
  const std::uint32_t adders = blockDim.x - piped_mover_threads;
  prepare_memory(memory, adds, adders);
  if (threadIdx.x < streams) name_stream(schedule, threadIdx.x, memory.streams[threadIdx.x]);
  __syncthreads();
  const std::uint32_t before = begin_launch(ring);
  if (threadIdx.x < streams && !resume(ring, memory.streams[threadIdx.x])) store_progress(memory.failed, 1);
  mark_start(ring, before);
  __syncthreads();
  const bool goes_on = load_progress(memory.failed) == 0;
  const auto role = static_cast<PipedRole>(threadIdx.x / warp_threads);
  if (goes_on && role == PipedRole::sender) Sender<Schedule, Memory>(schedule, memory).run();
  if (goes_on && role == PipedRole::receiver) Receiver<Schedule, Memory>(schedule, memory).run();
  if (goes_on && role == PipedRole::flag_publisher) FlagPublisher<Schedule, Memory>(schedule, memory).run();
  if (goes_on && role == PipedRole::returner) Returner<Schedule, Memory>(schedule, memory).run();
  if constexpr (!adds) {
    if (goes_on && role >= PipedRole::adders)
      copy_own(schedule, threadIdx.x - piped_mover_threads, blockDim.x - piped_mover_threads);
  } else {
    if (goes_on && role == PipedRole::fetcher) Fetcher<Schedule, Memory>(schedule, memory).run();
    if (goes_on && threadIdx.x == static_cast<std::uint32_t>(PipedRole::storer) * warp_threads)
      Storer<Schedule, Memory>(schedule, memory).run();
    if (goes_on && role >= PipedRole::adders) {
      Adder<Schedule, Memory>(schedule, memory).run(threadIdx.x - piped_mover_threads, adders, sum);
      if constexpr (std::is_same_v<std::remove_cvref_t<Sum>, OnlyPart>)
        copy_sent(sum.call, threadIdx.x - piped_mover_threads, adders < copying_threads ? adders : copying_threads);
    }
  }
  __syncthreads();
  if (threadIdx.x < streams) save(ring, memory, threadIdx.x);
  count_finished_block(ring);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define STRAIT_PIPED(body) body
#else
#define STRAIT_PIPED(body)
#endif

/// A template only so that a header may define it.
template <class P = Bulk>
__global__ void __launch_bounds__(piped_mover_threads + piped_adder_threads, 1)
    piped_exchange_copy(const __grid_constant__ Exchange call) {
  STRAIT_PIPED((run_piped<false>(ExchangeSchedule<false>(call), launched_memory<PipedCopyMemory>(), 0)));
}
/// A broadcast. The root's adders copy what it keeps.
template <class P = Bulk>
__global__ void __launch_bounds__(piped_mover_threads + piped_adder_threads, 1)
    piped_two_hop_copy(const __grid_constant__ TwoHop call) {
  STRAIT_PIPED((run_piped<true>(TwoHopSchedule(call), launched_memory<PipedTwoHopMemory>(), OnlyPart{call})));
}
/// `kind` is the call's piped_kernel_type().
template <KernelType kind>
__global__ void __launch_bounds__(piped_mover_threads + piped_adder_threads, 1)
    piped_exchange_reduce(const __grid_constant__ Exchange call) {
  STRAIT_PIPED((
      run_piped<true>(ExchangeSchedule<true>(call), launched_memory<PipedSumMemory>(), part_reduction_of<kind>(call))));
}
template <KernelType kind>
__global__ void __launch_bounds__(piped_mover_threads + piped_adder_threads, 1)
    piped_two_hop_reduce(const __grid_constant__ TwoHop call) {
  STRAIT_PIPED(
      (run_piped<true>(TwoHopSchedule(call), launched_memory<PipedTwoHopMemory>(), part_reduction_of<kind>(call))));
}

}  // namespace strait::kernels
