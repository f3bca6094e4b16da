#pragma once

#include <cstdint>

#include "executor/plan_on_gpu/interpreter.hpp"
#include "kernels/arithmetic.cuh"

namespace strait::cuda {

/// The Machine of a CUDA thread. Counters are released and acquired at system scope. Because of the barriers around a
/// step, the release covers everything that the whole block has written, and the acquire everything that the whole
/// block reads afterwards. A fixed number of threads makes the strides of bulk loads constants, which saves registers
/// for addresses; `fixed_threads` == 0: as many threads as were launched.
template <std::uint32_t fixed_threads>
class GpuMachine {
 public:
  static STRAIT_DEVICE std::uint32_t thread() { return threadIdx.x; }
  static STRAIT_DEVICE std::uint32_t threads() { return fixed_threads != 0 ? fixed_threads : blockDim.x; }
  static STRAIT_DEVICE bool barrier_or(bool value) { return __syncthreads_or(value) != 0; }

  static STRAIT_DEVICE std::uint64_t load_acquire(const std::uint64_t* word) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  static STRAIT_DEVICE void store_release(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  static STRAIT_DEVICE void store_relaxed(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }

  static STRAIT_DEVICE Unit load_unit(const std::byte* from) {
    Unit unit;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(unit.words[0]), "=r"(unit.words[1]), "=r"(unit.words[2]), "=r"(unit.words[3])
                 : "l"(from));
    return unit;
  }
  static STRAIT_DEVICE void store_unit(std::byte* to, const Unit& unit) {
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(unit.words[0]),
                 "r"(unit.words[1]), "r"(unit.words[2]), "r"(unit.words[3]));
  }
  template <class E>
  static STRAIT_DEVICE E load_element(const E* from) {
    return *from;
  }
  template <class E>
  static STRAIT_DEVICE void store_element(E* to, E element) {
    *to = element;
  }

  /// In the memory model a vector access is a set of scalar accesses: each 64-bit word arrives whole, and carries its
  /// own epoch.
  static STRAIT_DEVICE Packets load_packets(const std::byte* from) {
    Packets packets;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(packets.words[0]), "=l"(packets.words[1])
                 : "l"(from)
                 : "memory");
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(packets.words[2]), "=l"(packets.words[3])
                 : "l"(from + unit_bytes)
                 : "memory");
    return packets;
  }
  static STRAIT_DEVICE void store_packets(std::byte* to, const Packets& packets) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(packets.words[0]), "l"(packets.words[1])
                 : "memory");
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to + unit_bytes), "l"(packets.words[2]),
                 "l"(packets.words[3])
                 : "memory");
  }

  template <DataType type, int count>
  static STRAIT_DEVICE void widen(const Unit& unit, spec::AccumulatorType<type> (&values)[count]) {
    kernels::widen<type>(unit, values);
  }
  template <DataType type, int count>
  static STRAIT_DEVICE Unit narrow(const spec::AccumulatorType<type> (&values)[count]) {
    return kernels::narrow<type, Unit>(values);
  }

  static STRAIT_DEVICE bool aborted(const Control& control) {
    return *static_cast<const volatile std::uint32_t*>(&control.abort) != 0;
  }
  static STRAIT_DEVICE std::uint64_t now_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  static STRAIT_DEVICE bool claim(std::uint32_t* word) { return atomicExch(word, 1U) == 0; }
  static STRAIT_DEVICE void publish(ErrorRecord& place, const ErrorRecord& record, WaitFailure failure) {
    place = record;
    __threadfence_system();
    *reinterpret_cast<volatile std::uint32_t*>(&place.failure) = static_cast<std::uint32_t>(failure);
  }
};

}  // namespace strait::cuda
