#pragma once

#include "gpu/litmus.cuh"
#include "kernels/async_copy.cuh"

/// What pipes (kernels/piped.cuh) require of memory: asynchronous copies fill slots and read them, while other warps
/// publish the slots, and give them back without a fence.
namespace strait::testing {

/// The shared memory of a block: stages for the data of two rounds, which alternate.
struct LitmusPipe {
  static constexpr std::uint32_t stage_bytes = 32 * kernels::piece_bytes;
  alignas(128) std::byte stages[2][stage_bytes];
  kernels::Barrier landed;
  std::uint32_t done;  ///< number of rounds whose copy has completed
};

inline constexpr std::uint32_t teller = kernels::warp_threads;  ///< publishes or returns slots; its warp copies nothing

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ void await_progress(const std::uint32_t& done, std::uint32_t rounds) {
  while (kernels::load_progress(done) < rounds) kernels::pause();
}

/// Does what the kernels' Sender and FlagPublisher do.
template <Weakness weakness>
__device__ void write_by_pipe(const Traffic& traffic, std::uint32_t lane, LitmusPipe& pipe) {
  kernels::PollMonitor monitor;
  for (std::uint32_t round = 0; round < traffic.rounds; ++round) {
    const kernels::Outgoing chunk = outgoing<kernels::Bulk>(traffic, lane, round);
    std::byte* const stage = pipe.stages[round % 2];
    for (std::uint32_t at = threadIdx.x * sizeof(Granule); at < chunk.bytes; at += blockDim.x * sizeof(Granule))
      *reinterpret_cast<Granule*>(stage + at) = datum(round, lane, at);
    kernels::fence_async_shared();
    bool gives_up = false;
    if (threadIdx.x == 0)
      while (round >= kernels::acquire_word(traffic.out.returned + lane) + traffic.depth && !gives_up)
        gives_up = monitor.must_give_up(traffic.ring, 0, lane, true);
    if (__syncthreads_or(gives_up) != 0) return give_up(traffic);
    perhaps_pause(traffic, round);
    if (weakness == Weakness::flag_first && threadIdx.x == 0) {
      kernels::publish(chunk);
      pause(control_pause_cycles);
    }
    if (threadIdx.x == 0) {
      kernels::store_async(chunk.slot, stage, chunk.bytes);
      kernels::close_group();
      kernels::wait_stored<0>();
      kernels::store_progress(pipe.done, round + 1);
    }
    if (weakness != Weakness::flag_first && threadIdx.x == teller) {
      await_progress(pipe.done, round + 1);
      if (weakness != Weakness::no_fence) __threadfence_system();
      kernels::publish(chunk);
    }
  }
}

/// Does what the kernels' Receiver and Returner do.
template <Weakness weakness>
__device__ void read_by_pipe(const Traffic& traffic, std::uint32_t lane, LitmusPipe& pipe) {
  Tally mine{};
  for (std::uint32_t round = 0; round < traffic.rounds; ++round) {
    const kernels::Incoming chunk = incoming<kernels::Bulk>(traffic, lane, round);
    std::byte* const stage = pipe.stages[round % 2];
    const bool gives_up = threadIdx.x == 0 && !await_flag<weakness>(traffic, chunk);
    if (__syncthreads_or(gives_up) != 0) return give_up(traffic);
    perhaps_pause(traffic, ~round);
    if (threadIdx.x == 0) {
      if constexpr (weakness == Weakness::return_first) {
        kernels::store_word(traffic.in.returned + lane, round + 1);
        pause(control_pause_cycles);
      }
      kernels::fence_async_global();
      kernels::arrive_expecting(pipe.landed, chunk.bytes);
      kernels::load_async(stage, chunk.slot, chunk.bytes, pipe.landed);
      while (!kernels::has_ended(pipe.landed, round % 2)) {
      }
      kernels::store_progress(pipe.done, round + 1);
    }
    if (weakness != Weakness::return_first && threadIdx.x == teller) {
      await_progress(pipe.done, round + 1);
      kernels::store_word(traffic.in.returned + lane, round + 1);
    }
    __syncthreads();
    for (std::uint32_t at = threadIdx.x * sizeof(Granule); at < chunk.bytes; at += blockDim.x * sizeof(Granule))
      examine<kernels::Bulk>(*reinterpret_cast<const Granule*>(stage + at), {at, at, sizeof(Granule), true}, lane,
                             round, mine);
  }
  add(*traffic.tally, mine);
}

#endif

/// pass_messages() for bulk slots, by pipes; for compute capability 9.0 and later. In a block, one warp copies and one
/// publishes or returns slots.
template <Weakness weakness>
__global__ void __launch_bounds__(kernels::max_threads, 1) pass_by_pipes(const __grid_constant__ Traffic traffic) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  meet(traffic);
  __shared__ LitmusPipe pipe;
  if (threadIdx.x == 0) {
    kernels::prepare_barrier(pipe.landed, 1);
    pipe.done = 0;
    kernels::fence_async_shared();
  }
  __syncthreads();
  if (blockIdx.x < traffic.lanes)
    write_by_pipe<weakness>(traffic, blockIdx.x, pipe);
  else
    read_by_pipe<weakness>(traffic, blockIdx.x - traffic.lanes, pipe);
#endif
}

}  // namespace strait::testing
