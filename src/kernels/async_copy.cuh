#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/primitives.cuh"

/// Copies that one thread starts and the hardware carries out: between global memory, a peer's too, and the block's
/// (PTX cp.async.bulk, from compute capability 9.0 on). Addresses and lengths are multiples of 16. A test that runs the
/// kernels on the CPU brings its own (primitives.cuh).
#ifndef STRAIT_EMULATED_GPU
namespace strait::kernels {

/// In shared memory: counts arrivals, and bytes that are to come. A phase ends when all of both are there; the first
/// has parity 0.
struct Barrier {
  std::uint64_t word;
};

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}
__device__ __forceinline__ void prepare_barrier(Barrier& barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
/// Arrives, and says how many bytes of load_async() belong to the phase.
__device__ __forceinline__ void arrive_expecting(Barrier& barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
               : "memory");
}
/// Whether the phase has ended; waits a while for it.
__device__ __forceinline__ bool has_ended(Barrier& barrier, std::uint32_t parity) {
  std::uint32_t ended;
  asm volatile(
      "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(ended)
      : "r"(shared_address(&barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}

__device__ __forceinline__ void load_async(std::byte* shared, const std::byte* from, std::uint32_t bytes,
                                           Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(from), "r"(bytes), "r"(shared_address(&barrier))
               : "memory");
}
/// Belongs to this thread's open group, which close_group() closes.
__device__ __forceinline__ void store_async(std::byte* to, const std::byte* shared, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(shared)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void close_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until all of this thread's groups but the last `pending` have left shared memory, or are where they belong.
template <int pending>
__device__ __forceinline__ void wait_left() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
template <int pending>
__device__ __forceinline__ void wait_stored() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}
/// Between accesses of this thread, or such as it has seen, and asynchronous copies that it starts: to what was
/// prepared or written in shared memory, and to what has come in global memory.
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/// A number in shared memory by which one warp tells another how far it is: what it did before is seen with it.
__device__ __forceinline__ std::uint32_t load_progress(const std::uint32_t& progress) {
  std::uint32_t value;
  asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(shared_address(&progress)) : "memory");
  return value;
}
__device__ __forceinline__ void store_progress(std::uint32_t& progress, std::uint32_t value) {
  asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(shared_address(&progress)), "r"(value) : "memory");
}
__device__ __forceinline__ std::uint64_t clock_cycles() { return static_cast<std::uint64_t>(clock64()); }
/// Leaves the SM to others for a moment.
__device__ __forceinline__ void pause() { __nanosleep(40); }

/// A block's memory for a T, of the size that the launch has asked for.
template <class T>
__device__ __forceinline__ T& launched_memory() {
  extern __shared__ __align__(128) std::byte launched[];
  return *reinterpret_cast<T*>(launched);
}

}  // namespace strait::kernels
#endif
