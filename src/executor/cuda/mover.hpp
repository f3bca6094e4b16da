#pragma once

#include <cstddef>
#include <cstdint>

#include "base/reduce_spec.hpp"
#include "executor/cuda/launch.hpp"

#if defined(__CUDACC__)
#define STRAIT_DEVICE __device__ __forceinline__
#define STRAIT_UNROLL _Pragma("unroll")
#else
#define STRAIT_DEVICE
#define STRAIT_UNROLL
#endif

/// Moves and reduces one block's part of one step, whatever its operands are made of.
namespace strait::cuda {

struct alignas(16) Unit {
  std::uint32_t words[4];
};

/// A Unit on its way: each 64-bit word holds 32 bits of data below 32 bits of epoch, and is written and read whole.
struct alignas(16) Packets {
  std::uint64_t words[4];
};
inline constexpr std::size_t packets_bytes = sizeof(Packets);

/// A short message leaves the rest of its slot as it was, and an epoch has 32 bits: once in this many uses of a channel
/// (and at the first ones, when memory is zero) the writer fills its slots to the end, so that no stale packet ever
/// bears the epoch that is waited for.
inline constexpr std::uint64_t packet_fill_period = std::uint64_t{1} << 30;

/// Where one block's part of an operand lies.
struct PlacedOperand {
  std::byte* address;
  std::uint32_t epoch;  ///< packets: what this slot's bear
  std::uint16_t channel;
  bool packet;
  bool fill;  ///< packets: write the slot to its end
};

struct MoverMemory {
  PlacedOperand operands[max_operands];  ///< sources, then destinations
  std::size_t bytes;
};

/// How long a thread goes on polling. Looks at the abort word (over PCIe) and the clock only now and then.
class Patience {
 public:
  template <class M>
  STRAIT_DEVICE WaitFailure spent(M& machine, const Control& control, std::uint64_t timeout_ns) {
    if (++polls_ % polls_between_looks != 0) return WaitFailure::none;
    if (machine.aborted(control)) return WaitFailure::aborted;
    const std::uint64_t now_ns = machine.now_ns();
    if (deadline_ns_ == 0) deadline_ns_ = now_ns + timeout_ns;
    return now_ns < deadline_ns_ ? WaitFailure::none : WaitFailure::timeout;
  }

 private:
  static constexpr std::uint32_t polls_between_looks = 2048;
  std::uint32_t polls_ = 0;
  std::uint64_t deadline_ns_ = 0;
};

template <class M, DataType type, ReduceOp op, Protocol protocol>
class Mover {
  using Element = spec::ElementType<type>;
  using Accumulator = spec::AccumulatorType<type>;
  static constexpr int elements_per_unit = static_cast<int>(unit_bytes / sizeof(Element));

 public:
  STRAIT_DEVICE Mover(M& machine, const MoverMemory& memory, const FlatStep& step, const DeviceProgram& program,
                      const Control& control, std::uint64_t timeout_ns)
      : machine_(machine),
        memory_(memory),
        step_(step),
        program_(program),
        control_(control),
        timeout_ns_(timeout_ns),
        units_(static_cast<std::uint32_t>((memory.bytes + unit_bytes - 1) / unit_bytes)) {
    std::uintptr_t bits = 0;
    for (std::uint32_t i = 0; i < std::uint32_t{step.sources} + step.destinations; ++i)
      bits |= reinterpret_cast<std::uintptr_t>(memory.operands[i].address);
    aligned_ = bits % unit_bytes == 0;
  }

  /// False: a packet did not arrive; see failure().
  STRAIT_DEVICE bool run() {
    bool arrived = true;
    if (!step_.reduces) {
      if (step_.sources > 0 && step_.destinations > 0) arrived = run_with<1, false>();
    } else if (step_.sources <= 1) {
      arrived = run_with<1, true>();
    } else if (step_.sources == 2) {
      arrived = run_with<2, true>();
    } else if (step_.sources <= 4) {
      arrived = run_with<4, true>();
    } else {
      arrived = run_with<8, true>();
    }
    if constexpr (protocol == Protocol::packet) fill_slots();
    return arrived;
  }
  STRAIT_DEVICE WaitFailure failure() const { return failure_; }
  STRAIT_DEVICE const PlacedOperand& failed_operand() const { return memory_.operands[failed_]; }

 private:
  template <int sources, bool reduces>
  STRAIT_DEVICE bool run_with() {
    std::uint32_t done = 0;
    if (protocol == Protocol::simple && aligned_) {
      done = static_cast<std::uint32_t>(memory_.bytes / unit_bytes);
      stream<sources, reduces>(done);
    }
    return walk<sources, reduces>(done);
  }

  /// Whole units of aligned memory: many loads in flight before the first use.
  template <int sources, bool reduces>
  STRAIT_DEVICE void stream(std::uint32_t units) {
    constexpr int batch = sources == 1 ? 8 : sources == 8 ? 2 : 4;
    const std::byte* from[sources];
    STRAIT_UNROLL
    for (int s = 0; s < sources; ++s) from[s] = memory_.operands[s].address;
    const std::uint32_t stride = machine_.threads();
    std::uint32_t unit = machine_.thread();
    for (; unit + (batch - 1) * stride < units; unit += batch * stride) {
      Unit values[batch][sources];
      STRAIT_UNROLL
      for (int s = 0; s < sources; ++s) {
        if (!takes<sources>(s)) continue;
        STRAIT_UNROLL
        for (int b = 0; b < batch; ++b) values[b][s] = M::load_unit(from[s] + (unit + b * stride) * unit_bytes);
      }
      STRAIT_UNROLL
      for (int b = 0; b < batch; ++b) store_units(unit + b * stride, combine<sources, reduces>(values[b]));
    }
    for (; unit < units; unit += stride) {
      Unit values[sources];
      STRAIT_UNROLL
      for (int s = 0; s < sources; ++s)
        if (takes<sources>(s)) values[s] = M::load_unit(from[s] + unit * unit_bytes);
      store_units(unit, combine<sources, reduces>(values));
    }
  }

  STRAIT_DEVICE void store_units(std::size_t unit, const Unit& value) {
    for (std::uint32_t d = 0; d < step_.destinations; ++d)
      M::store_unit(memory_.operands[step_.sources + d].address + unit * unit_bytes, value);
  }

  /// Any memory and packets, unit by unit from `first`; the last unit may be short.
  template <int sources, bool reduces>
  STRAIT_DEVICE bool walk(std::uint32_t first) {
    for (std::uint32_t unit = first + machine_.thread(); unit < units_; unit += machine_.threads()) {
      const std::size_t left = (memory_.bytes - unit * unit_bytes) / sizeof(Element);
      const int valid = left < elements_per_unit ? static_cast<int>(left) : elements_per_unit;
      Unit values[sources];
      if (!gather<sources>(unit, valid, values)) return false;
      const Unit result = combine<sources, reduces>(values);
      for (std::uint32_t d = 0; d < step_.destinations; ++d) {
        const PlacedOperand& to = memory_.operands[step_.sources + d];
        if (protocol == Protocol::packet && to.packet) {
          M::store_packets(to.address + unit * packets_bytes, pack(result, to.epoch));
        } else {
          store_elements(to.address + unit * unit_bytes, valid, result);
        }
      }
    }
    return true;
  }

  /// All sources' loads are in flight before the first packet is looked at.
  template <int sources>
  STRAIT_DEVICE bool gather(std::size_t unit, int valid, Unit (&values)[sources]) {
    [[maybe_unused]] Packets packets[sources];
    bool arrived = true;
    STRAIT_UNROLL
    for (int s = 0; s < sources; ++s) {
      if (!takes<sources>(s)) continue;
      const PlacedOperand& from = memory_.operands[s];
      if (protocol == Protocol::packet && from.packet) {
        packets[s] = M::load_packets(from.address + unit * packets_bytes);
      } else {
        values[s] = load_elements(from.address + unit * unit_bytes, valid);
      }
    }
    if constexpr (protocol == Protocol::packet) {
      STRAIT_UNROLL
      for (int s = 0; s < sources; ++s) {
        if (!takes<sources>(s) || !memory_.operands[s].packet) continue;
        arrived &= await(s, unit, packets[s]);
        values[s] = unpack(packets[s]);
      }
    }
    return arrived;
  }

  STRAIT_DEVICE bool await(int source, std::size_t unit, Packets& packets) {
    const PlacedOperand& from = memory_.operands[source];
    Patience patience;
    while (!bears(packets, from.epoch)) {
      if (failure_ == WaitFailure::none) {
        failure_ = patience.spent(machine_, control_, timeout_ns_);
        failed_ = source;
      }
      if (failure_ != WaitFailure::none) return false;
      packets = M::load_packets(from.address + unit * packets_bytes);
    }
    return true;
  }

  STRAIT_DEVICE void fill_slots() {
    const std::uint32_t capacity = program_.block_slot_bytes / static_cast<std::uint32_t>(unit_bytes);
    for (std::uint32_t d = 0; d < step_.destinations; ++d) {
      const PlacedOperand& to = memory_.operands[step_.sources + d];
      if (!to.fill) continue;
      for (std::uint32_t unit = units_ + machine_.thread(); unit < capacity; unit += machine_.threads())
        M::store_packets(to.address + unit * packets_bytes, pack(Unit{}, to.epoch));
    }
  }

  /// `sources` is the step's number of sources rounded up to a number that code was made for.
  template <int sources>
  STRAIT_DEVICE bool takes(int source) const {
    return sources <= 2 || source < step_.sources;
  }

  template <int sources, bool reduces>
  STRAIT_DEVICE Unit combine(const Unit (&values)[sources]) const {
    if constexpr (!reduces) {
      return values[0];
    } else {
      Accumulator sum[elements_per_unit];
      Accumulator next[elements_per_unit];
      M::template widen<type>(values[0], sum);
      STRAIT_UNROLL
      for (int s = 1; s < sources; ++s) {
        if (!takes<sources>(s)) continue;
        M::template widen<type>(values[s], next);
        STRAIT_UNROLL
        for (int e = 0; e < elements_per_unit; ++e) sum[e] = spec::combine<op>(sum[e], next[e]);
      }
      if (op == ReduceOp::avg && step_.final) {
        STRAIT_UNROLL
        for (int e = 0; e < elements_per_unit; ++e) sum[e] = spec::finish<op>(sum[e], program_.ranks);
      }
      return M::template narrow<type>(sum);
    }
  }

  struct Elements {
    Element values[elements_per_unit];
  };
  STRAIT_DEVICE Unit load_elements(const std::byte* from, int valid) const {
    if (aligned_ && valid == elements_per_unit) return M::load_unit(from);
    Elements elements{};
    STRAIT_UNROLL
    for (int e = 0; e < elements_per_unit; ++e)
      if (e < valid) elements.values[e] = M::load_element(reinterpret_cast<const Element*>(from) + e);
    return __builtin_bit_cast(Unit, elements);
  }
  STRAIT_DEVICE void store_elements(std::byte* to, int valid, const Unit& value) const {
    if (aligned_ && valid == elements_per_unit) return M::store_unit(to, value);
    const Elements elements = __builtin_bit_cast(Elements, value);
    STRAIT_UNROLL
    for (int e = 0; e < elements_per_unit; ++e)
      if (e < valid) M::store_element(reinterpret_cast<Element*>(to) + e, elements.values[e]);
  }

  static STRAIT_DEVICE Packets pack(const Unit& value, std::uint32_t epoch) {
    Packets packets;
    STRAIT_UNROLL
    for (int w = 0; w < 4; ++w) packets.words[w] = std::uint64_t{epoch} << 32 | value.words[w];
    return packets;
  }
  static STRAIT_DEVICE Unit unpack(const Packets& packets) {
    Unit value;
    STRAIT_UNROLL
    for (int w = 0; w < 4; ++w) value.words[w] = static_cast<std::uint32_t>(packets.words[w]);
    return value;
  }
  static STRAIT_DEVICE bool bears(const Packets& packets, std::uint32_t epoch) {
    return packets.words[0] >> 32 == epoch && packets.words[1] >> 32 == epoch && packets.words[2] >> 32 == epoch &&
           packets.words[3] >> 32 == epoch;
  }

  M& machine_;
  const MoverMemory& memory_;
  const FlatStep& step_;
  const DeviceProgram& program_;
  const Control& control_;
  const std::uint64_t timeout_ns_;
  const std::uint32_t units_;
  bool aligned_ = false;
  WaitFailure failure_ = WaitFailure::none;
  int failed_ = 0;
};

}  // namespace strait::cuda
