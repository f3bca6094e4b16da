#pragma once

#include <cstddef>
#include <cstdint>

/// What the protocol asks of the hardware. A test that runs the kernels on the CPU defines STRAIT_EMULATED_GPU and
/// brings its own.
#ifndef STRAIT_EMULATED_GPU
namespace strait::kernels {

/// What a thread moves at a time: 16 bytes of a slot. Of a line, the last of eight has data in `low` only, and the flag
/// beside it; of packets, all do.
struct Granule {
  std::uint64_t low;
  std::uint64_t high;
};

__device__ __forceinline__ Granule load_granule(const std::byte* from) {
  Granule g;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(g.low), "=l"(g.high) : "l"(from) : "memory");
  return g;
}
__device__ __forceinline__ void store_granule(std::byte* to, const Granule& g) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(g.low), "l"(g.high) : "memory");
}
__device__ __forceinline__ std::uint64_t load_word(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_word(std::uint64_t* to, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/// How often a thread polls before it looks at the mailbox and the clock, which cost more.
inline constexpr std::uint32_t polls_between_looks = 4096;
__device__ __forceinline__ std::uint64_t device_now_ns() {
  std::uint64_t now_ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
  return now_ns;
}

/// A block's memory for a T: the same for all its threads.
template <class T>
__device__ __forceinline__ T& shared_memory() {
  __shared__ T memory;
  return memory;
}

}  // namespace strait::kernels
#endif
