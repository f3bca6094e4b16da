#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/primitives.cuh"

/// Copies that one thread starts and the hardware carries out, between global memory (also that of a peer) and the
/// block's shared memory (PTX cp.async.bulk, from compute capability 9.0 on). Addresses and lengths are multiples of
/// 16. Tests that run the kernels on the CPU provide their own versions (primitives.cuh).
#ifndef STRAIT_EMULATED_GPU
namespace strait::kernels {

/// A barrier in shared memory that counts arrivals, and bytes that are still to arrive. A phase ends when both are
/// complete; the first phase has parity 0.
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
/// Arrives, and adds to the phase the number of bytes that load_async() will bring.
__device__ __forceinline__ void arrive_expecting(Barrier& barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
               : "memory");
}
/// Returns whether the phase has ended, after waiting for that for a limited time.
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
/// Wait until all of this thread's groups except the last `pending` have been read from shared memory, or have been
/// stored completely.
template <int pending>
__device__ __forceinline__ void wait_left() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
template <int pending>
__device__ __forceinline__ void wait_stored() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}
/// Order earlier accesses to shared or global memory before asynchronous copies that this thread starts: accesses by
/// this thread, or by others if it has seen their effects.
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/// A number in shared memory through which one warp tells another how far it has come. A reader of a value also sees
/// what the writer did before.
__device__ __forceinline__ std::uint32_t load_progress(const std::uint32_t& progress) {
  std::uint32_t value;
  asm volatile("ld.acquire.cta.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(shared_address(&progress)) : "memory");
  return value;
}
__device__ __forceinline__ void store_progress(std::uint32_t& progress, std::uint32_t value) {
  asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(shared_address(&progress)), "r"(value) : "memory");
}
__device__ __forceinline__ std::uint64_t clock_cycles() { return static_cast<std::uint64_t>(clock64()); }
/// Leaves the SM to other warps for a moment.
__device__ __forceinline__ void pause() { __nanosleep(40); }

/// Returns a block's dynamic shared memory as a T. The launch must have asked for this much.
template <class T>
__device__ __forceinline__ T& launched_memory() {
  extern __shared__ __align__(128) std::byte launched[];
  return *reinterpret_cast<T*>(launched);
}

}  // namespace strait::kernels
#endif
