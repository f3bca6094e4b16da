#pragma once

#include <cstddef>
#include <cstdint>

/// What the protocols need from the hardware. Tests that run the kernels on the CPU define STRAIT_EMULATED_GPU and
/// provide their own versions.
#ifndef STRAIT_EMULATED_GPU
#define STRAIT_NOINLINE __noinline__
namespace strait::kernels {

/// What a thread moves at a time: 16 bytes of a slot. In a line, the last of the eight granules has data in `low` and
/// the flag in `high`. In packets, every granule has its flag in the last four bytes.
struct alignas(16) Granule {
  std::uint64_t low;
  std::uint64_t high;
};

/// Loads or stores a granule in a single access, as seen by all other threads. PTX guarantees this for .b128. It holds
/// for .v2.u64, too, because both compile to the same instructions; not all compilers of CUDA 12 know .b128.
__device__ __forceinline__ Granule load_granule(const std::byte* from) {
  Granule g;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(g.low), "=l"(g.high) : "l"(from) : "memory");
  return g;
}
__device__ __forceinline__ void store_granule(std::byte* to, const Granule& g) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(g.low), "l"(g.high) : "memory");
}
/// Stores a granule on a condition, by a predicated instruction. With a branch, the compiler would compute the address
/// only behind it, when the condition is known.
__device__ __forceinline__ void store_granule_if(bool condition, std::byte* to, const Granule& g) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t@p st.relaxed.sys.global.v2.u64 [%0], {%1, %2};\n\t}" ::"l"(to),
      "l"(g.low), "l"(g.high), "r"(static_cast<std::uint32_t>(condition))
      : "memory");
}
/// Weak loads and stores of granules, which only barriers and fences order. For slots whose flag was acquired before,
/// or will be written after a fence, and for user memory.
__device__ __forceinline__ Granule load_plain(const std::byte* from) {
  Granule g;
  asm volatile("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(g.low), "=l"(g.high) : "l"(from) : "memory");
  return g;
}
__device__ __forceinline__ void store_plain(std::byte* to, const Granule& g) {
  asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(g.low), "l"(g.high) : "memory");
}
__device__ __forceinline__ std::uint64_t load_word(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
/// Loads a word with acquire semantics: reads after this load see everything that was written before the value it
/// returns.
__device__ __forceinline__ std::uint64_t acquire_word(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_word(std::uint64_t* to, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/// Words of 32 bits, which streams also write and wait for.
__device__ __forceinline__ std::uint32_t acquire_count(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
/// Relaxed: needs a fence before it if earlier writes are to be seen with the value.
__device__ __forceinline__ void store_count(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
/// Increments a word in this device's memory and returns the previous value.
__device__ __forceinline__ std::uint32_t count_up(std::uint32_t* word) { return atomicAdd(word, 1u); }
/// Adds to a word in this device's memory; nothing waits for the result.
__device__ __forceinline__ void add_count(std::uint32_t* word, std::uint32_t value) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

/// Increments a word for streams of this device. Whoever sees the new value also sees what this thread did before, and
/// what other threads did that earlier barriers have made visible to it.
__device__ __forceinline__ void count_up_released(std::uint32_t* word) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(word) : "memory");
}

/// Hints that this memory is about to be read.
__device__ __forceinline__ void prefetch(const std::byte* from) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}

/// As prefetch(), for memory that the previous launch may still write: only into L2, because a copy in this SM's L1
/// could become stale.
__device__ __forceinline__ void prefetch_far(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

/// Polls of a thread between two looks at the mailbox and the clock, which cost more than a poll.
inline constexpr std::uint32_t polls_between_looks = 4096;
__device__ __forceinline__ std::uint64_t device_now_ns() {
  std::uint64_t now_ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
  return now_ns;
}

/// Begins a kernel that may be launched while its predecessor in the stream still runs: waits until everything before
/// it is done, and then allows the next kernel to be launched in the same way (programmatic dependent launch).
__device__ __forceinline__ void after_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Brings the arguments of a launch into its SM while the previous launch still runs. Called first, by all threads of a
/// block. Arguments arrive in lines of 64 bytes. Without this, threads would wait for each line when they first need
/// it, one after the other, after the end of the previous launch.
template <class Argument>
__device__ __forceinline__ void fetch_arguments(const Argument& argument) {
  constexpr std::uint32_t words = sizeof(Argument) / sizeof(std::uint32_t), line_words = 16, at_once = 8;
  const auto* const first = reinterpret_cast<const std::uint32_t*>(&argument);
  const std::uint32_t stride = blockDim.x / 32 * line_words;
  std::uint32_t all = 0;
#pragma unroll 1
  for (std::uint32_t at = threadIdx.x / 32 * line_words; at < words + line_words; at += at_once * stride) {
#pragma unroll
    for (std::uint32_t i = 0; i < at_once; ++i) all ^= first[min(at + i * stride, words - 1)];
  }
  // Keeps the compiler from removing the loads. Nobody reads the value. The compiler cannot know whether the condition
  // holds; it rarely does, so threads do not all store to the same place.
  __shared__ std::uint32_t kept;
  asm volatile("{\n\t.reg .pred is;\n\tsetp.eq.u32 is, %1, 0x57ae17;\n\t@is st.shared.u32 [%0], %1;\n\t}" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(&kept))),
               "r"(all));
}

/// Returns a block's shared memory for a T, which is the same object for all its threads.
template <class T>
__device__ __forceinline__ T& shared_memory() {
  __shared__ T memory;
  return memory;
}

}  // namespace strait::kernels
#endif
