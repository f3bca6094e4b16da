#pragma once

#include <cstddef>
#include <cstdint>

#include "base/reduce_spec.hpp"
#include "executor/plan_on_gpu/launch.hpp"

#if defined(__CUDACC__)
#define STRAIT_DEVICE __device__ __forceinline__
#define STRAIT_UNROLL _Pragma("unroll")
#else
#define STRAIT_DEVICE
#define STRAIT_UNROLL
#endif

/// Moves and reduces one block's part of one step, between any buffers and slots.
namespace strait::cuda {

struct alignas(16) Unit {
  std::uint32_t words[4];
};

/// A Unit in transit: each 64-bit word has 32 bits of data below 32 bits of epoch, and is written and read whole.
struct alignas(16) Packets {
  std::uint64_t words[4];
};
inline constexpr std::size_t packets_bytes = sizeof(Packets);

/// How often a writer fills its slots to the end: at the first uses of a channel, when memory is zero, and then once in
/// this many uses. A short message leaves the rest of its slot unchanged, and an epoch has 32 bits; without filling, a
/// stale packet could have the epoch that is waited for.
inline constexpr std::uint64_t packet_fill_period = std::uint64_t{1} << 30;

/// Where one block's part of an operand is.
struct PlacedOperand {
  std::byte* address;
  std::uint32_t epoch;  ///< packets: the epoch of this use of the slot
  std::uint16_t channel;
  bool packet;
  bool fill;  ///< packets: write the slot to its end
};

struct MoverMemory {
  PlacedOperand operands[max_operands];  ///< sources, then destinations
  std::size_t bytes;
};

/// Decides how long a thread polls. Checks the abort word (over PCIe) and the clock only once in a while.
class PollMonitor {
 public:
  template <class M>
  STRAIT_DEVICE WaitFailure check(M& machine, const Control& control, std::uint64_t timeout_ns) {
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

  /// Returns false if a packet did not arrive; see failure().
  STRAIT_DEVICE bool run() {
    bool arrived = true;
    if (!step_.reduces) {
      if (step_.sources > 0 && step_.destinations > 0) arrived = run_with<1, 8, false>();
    } else if (step_.sources == 1) {
      arrived = run_with<1, 4, true>();
    } else if (step_.sources == 2) {
      arrived = run_with<2, 4, true>();
    } else if (step_.sources == 3) {
      arrived = run_with<3, 4, true>();
    } else if (step_.sources == 4) {
      arrived = run_with<4, 4, true>();
    } else {
      arrived = run_with<many, 2, true>();
    }
    if constexpr (protocol == Protocol::packet) fill_slots();
    return arrived;
  }
  STRAIT_DEVICE WaitFailure failure() const { return failure_; }
  STRAIT_DEVICE const PlacedOperand& failed_operand() const { return memory_.operands[failed_]; }

 private:
  /// The partial sum of a unit; in a copy, the unit itself.
  struct Sum {
    Accumulator values[elements_per_unit];
    Unit copied;
  };

  static constexpr int many = 0;  ///< any number of sources

  /// `batch`: number of units that a thread of stream() has in flight.
  template <int sources, int batch, bool reduces>
  STRAIT_DEVICE bool run_with() {
    std::uint32_t done = 0;
    if (protocol == Protocol::simple && aligned_) {
      const auto units = static_cast<std::uint32_t>(memory_.bytes / unit_bytes);
      const std::uint32_t round = batch * machine_.threads();
      done = units - units % round;
      stream<sources, batch, reduces>(0, done);
      stream<sources, 1, reduces>(done, units);
      done = units;
    }
    return walk<sources, reduces>(done);
  }

  /// Calls `add_group.template operator()<width>(first)` for each group of sources that are loaded together.
  template <int sources, class F>
  STRAIT_DEVICE bool for_groups(F&& add_group) const {
    if constexpr (sources != many) {
      return add_group.template operator()<sources>(0);
    } else {
      bool arrived = true;
      std::uint32_t first = 0;
      for (; first + 4 <= step_.sources; first += 4) arrived &= add_group.template operator()<4>(first);
      for (; first < step_.sources; ++first) arrived &= add_group.template operator()<1>(first);
      return arrived;
    }
  }

  /// Processes the whole units [first_unit, end) of aligned memory, with many loads in flight before the first use. The
  /// range must consist of full batches.
  template <int sources, int batch, bool reduces>
  STRAIT_DEVICE void stream(std::uint32_t first_unit, std::uint32_t end) {
    const std::uint32_t stride = machine_.threads();
    for (std::uint32_t unit = first_unit + machine_.thread(); unit < end; unit += batch * stride) {
      Sum sums[batch];
      for_groups<sources>([&]<int width>(std::uint32_t first) {
        Unit values[batch][width];
        STRAIT_UNROLL
        for (int s = 0; s < width; ++s) {
          const std::byte* from = memory_.operands[first + s].address + std::size_t{unit} * unit_bytes;
          STRAIT_UNROLL
          for (int b = 0; b < batch; ++b) values[b][s] = M::load_unit(from + b * stride * unit_bytes);
        }
        STRAIT_UNROLL
        for (int b = 0; b < batch; ++b) add<width, reduces>(sums[b], values[b], first);
        return true;
      });
      Unit results[batch];
      STRAIT_UNROLL
      for (int b = 0; b < batch; ++b) results[b] = finish<reduces>(sums[b]);
      for (std::uint32_t d = 0; d < step_.destinations; ++d) {
        std::byte* to = memory_.operands[step_.sources + d].address + std::size_t{unit} * unit_bytes;
        STRAIT_UNROLL
        for (int b = 0; b < batch; ++b) M::store_unit(to + b * stride * unit_bytes, results[b]);
      }
    }
  }

  /// Processes any memory and packets unit by unit, from `first_unit` on; the last unit may be short.
  template <int sources, bool reduces>
  STRAIT_DEVICE bool walk(std::uint32_t first_unit) {
    for (std::uint32_t unit = first_unit + machine_.thread(); unit < units_; unit += machine_.threads()) {
      const std::size_t left = (memory_.bytes - std::size_t{unit} * unit_bytes) / sizeof(Element);
      const int valid = left < elements_per_unit ? static_cast<int>(left) : elements_per_unit;
      Sum sum;
      const bool arrived = for_groups<sources>([&]<int width>(std::uint32_t first) {
        Unit values[width] = {};
        const bool all = gather<width>(first, unit, valid, values);
        add<width, reduces>(sum, values, first);
        return all;
      });
      if (!arrived) return false;
      const Unit result = finish<reduces>(sum);
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

  /// Gets a unit of each of several sources. All loads are in flight before the first packet is examined.
  template <int width>
  STRAIT_DEVICE bool gather(std::uint32_t first, std::size_t unit, int valid, Unit (&values)[width]) {
    [[maybe_unused]] Packets packets[width] = {};
    bool arrived = true;
    STRAIT_UNROLL
    for (int s = 0; s < width; ++s) {
      const PlacedOperand& from = memory_.operands[first + s];
      if (protocol == Protocol::packet && from.packet) {
        packets[s] = M::load_packets(from.address + unit * packets_bytes);
      } else {
        values[s] = load_elements(from.address + unit * unit_bytes, valid);
      }
    }
    if constexpr (protocol == Protocol::packet) {
      STRAIT_UNROLL
      for (int s = 0; s < width; ++s) {
        if (!memory_.operands[first + s].packet) continue;
        arrived &= await(first + s, unit, packets[s]);
        values[s] = unpack(packets[s]);
      }
    }
    return arrived;
  }

  STRAIT_DEVICE bool await(std::uint32_t source, std::size_t unit, Packets& packets) {
    const PlacedOperand& from = memory_.operands[source];
    PollMonitor monitor;
    while (!bears(packets, from.epoch)) {
      if (failure_ == WaitFailure::none) {
        failure_ = monitor.check(machine_, control_, timeout_ns_);
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

  template <int width, bool reduces>
  STRAIT_DEVICE void add(Sum& sum, const Unit (&values)[width], std::uint32_t first) const {
    if constexpr (!reduces) {
      sum.copied = values[0];
    } else {
      STRAIT_UNROLL
      for (int s = 0; s < width; ++s) {
        Accumulator next[elements_per_unit];
        M::template widen<type>(values[s], next);
        STRAIT_UNROLL
        for (int e = 0; e < elements_per_unit; ++e)
          sum.values[e] = s == 0 && first == 0 ? next[e] : spec::combine<op>(sum.values[e], next[e]);
      }
    }
  }

  template <bool reduces>
  STRAIT_DEVICE Unit finish(Sum& sum) const {
    if constexpr (!reduces) return sum.copied;
    if (op == ReduceOp::avg && step_.final) {
      STRAIT_UNROLL
      for (int e = 0; e < elements_per_unit; ++e) sum.values[e] = spec::finish<op>(sum.values[e], program_.ranks);
    }
    return M::template narrow<type>(sum.values);
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
  std::uint32_t failed_ = 0;
};

}  // namespace strait::cuda
