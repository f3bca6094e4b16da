#pragma once

#include <cstddef>
#include <cstdint>

/// What the protocol asks of the hardware. A test that runs the kernels on the CPU defines STRAIT_EMULATED_GPU and
/// brings its own.
#ifndef STRAIT_EMULATED_GPU
#define STRAIT_NOINLINE __noinline__
namespace strait::kernels {

/// What a thread moves at a time: 16 bytes of a slot. Of a line, the last of eight has data in `low` only, and the flag
/// beside it; of packets, all have a flag in the last four bytes.
struct alignas(16) Granule {
  std::uint64_t low;
  std::uint64_t high;
};

/// One access to all others, which PTX says of .b128. (So are these: the same instructions come of both, and .b128 is
/// not known to all compilers of CUDA 12.)
__device__ __forceinline__ Granule load_granule(const std::byte* from) {
  Granule g;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(g.low), "=l"(g.high) : "l"(from) : "memory");
  return g;
}
__device__ __forceinline__ void store_granule(std::byte* to, const Granule& g) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(g.low), "l"(g.high) : "memory");
}
/// Without a branch, behind which the address would be worked out once it is known.
__device__ __forceinline__ void store_granule_if(bool condition, std::byte* to, const Granule& g) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t@p st.relaxed.sys.global.v2.u64 [%0], {%1, %2};\n\t}" ::"l"(to),
      "l"(g.low), "l"(g.high), "r"(static_cast<std::uint32_t>(condition))
      : "memory");
}
/// The same in no order but that of barriers and fences: of a slot whose flag was acquired before, or is to be written
/// after them, and of the user's memory.
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
/// What was written before the value that this sees is there for whoever reads after this.
__device__ __forceinline__ std::uint64_t acquire_word(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_word(std::uint64_t* to, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

/// Words of 32 bits, which streams write and wait for as well.
__device__ __forceinline__ std::uint32_t acquire_count(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
/// After a fence, if what was written before it is to be seen.
__device__ __forceinline__ void store_count(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
/// Of this device's memory; what it was before.
__device__ __forceinline__ std::uint32_t count_up(std::uint32_t* word) { return atomicAdd(word, 1u); }
/// Likewise, and nobody waits for it.
__device__ __forceinline__ void add_count(std::uint32_t* word, std::uint32_t value) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

/// The same for streams of this device: who has seen it may rely on what this thread did before, and on what barriers
/// before it have shown this thread of others.
__device__ __forceinline__ void count_up_released(std::uint32_t* word) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(word) : "memory");
}

/// A hint that it is about to be read.
__device__ __forceinline__ void prefetch(const std::byte* from) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}

/// Likewise, of what the launch before this one may still write: not into what only this SM sees.
__device__ __forceinline__ void prefetch_far(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

/// How often a thread polls before it looks at the mailbox and the clock, which cost more.
inline constexpr std::uint32_t polls_between_looks = 4096;
__device__ __forceinline__ std::uint64_t device_now_ns() {
  std::uint64_t now_ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
  return now_ns;
}

/// A kernel may be launched while the one before it in the stream still runs, and begins with this: it waits until all
/// that came before is done, and then allows the next one to be launched likewise (programmatic dependent launch).
__device__ __forceinline__ void after_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// By all threads of a block, as the first of what they do: has a launch's arguments come to its SM while the launch
/// before this one still runs. They come by lines of 64 bytes, of each of which else all would wait, one after another,
/// when it is first needed after that launch's end.
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
  // Else no load would be left. Whatever they are, nobody reads this; the condition is none that the compiler knows of,
  // and keeps threads from storing to one place all together.
  __shared__ std::uint32_t kept;
  asm volatile("{\n\t.reg .pred is;\n\tsetp.eq.u32 is, %1, 0x57ae17;\n\t@is st.shared.u32 [%0], %1;\n\t}" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(&kept))),
               "r"(all));
}

/// A block's memory for a T: the same for all its threads.
template <class T>
__device__ __forceinline__ T& shared_memory() {
  __shared__ T memory;
  return memory;
}

}  // namespace strait::kernels
#endif
