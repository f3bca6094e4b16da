#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "kernels/launch.hpp"

namespace strait::cpu_reducers {

/// How CPU threads add up a chunk. With a `wire` format it consists of encoded runs (ReducerMemory::run_blocks), and
/// the sum is encoded again.
struct Sum {
  DataType type = DataType::float32;  ///< of the elements, if they are not encoded
  ReduceOp op = ReduceOp::sum;
  WireFormat wire = WireFormat::off;

  /// As kernels::Exchange::label; never 0.
  constexpr std::uint32_t label() const {
    return 1u << 24 | static_cast<std::uint32_t>(type) << 16 | static_cast<std::uint32_t>(op) << 8 |
           static_cast<std::uint32_t>(wire);
  }
  static constexpr Sum of_label(std::uint32_t label) {
    return {static_cast<DataType>(label >> 16 & 0xff), static_cast<ReduceOp>(label >> 8 & 0xff),
            static_cast<WireFormat>(label & 0xff)};
  }
};

/// The layout of the host memory through which the GPUs of a host pass chunks to CPU threads that add them up. To a
/// GPU's kernels the threads look like a rank: each GPU has a ring (kernels::Ring) of two ranks, itself (0) and the
/// threads (1), with bulk slots. Its arenas are `up(rank)`, which the GPU writes, and `down(rank)`, which the threads
/// write. The result slots of all down arenas are the same memory: a sum is written once, and every GPU reads it.
/// Offsets are in bytes from the start of the memory.
struct ReducerMemory {
  std::uint32_t ranks = 0;
  std::uint32_t lanes = 0;
  std::uint32_t slot_bytes = 0;

  static constexpr std::uint32_t gpu = 0, threads = 1;  ///< ranks of a GPU's ring

  /// In a wire format, GPUs send consecutive encoded runs of this many blocks, and a chunk consists of whole runs.
  static constexpr std::uint32_t run_blocks = wire::granular_run_blocks;
  static constexpr std::size_t run_bytes(WireFormat format) { return wire::granular_run_bytes(format); }

  /// As many lanes as a kernel has blocks, or, if memory is short, as have slots of 4 KB. Little is in flight on each
  /// lane, because all that is in flight should stay in the last-level cache, and no more than this budget is pinned.
  static constexpr std::size_t budget_bytes = std::size_t{64} << 20;
  static constexpr ReducerMemory of(std::uint32_t ranks, std::size_t most_bytes = budget_bytes) {
    constexpr std::uint32_t most_lanes = 128, least_slot_bytes = 4 << 10, most_slot_bytes = 24 << 10;
    const std::size_t headers_bytes = ranks * (ranks + std::size_t{3}) / 2 * header_bytes;
    const std::size_t a_lane = (most_bytes - headers_bytes) / ((std::size_t{ranks} + 1) * kernels::slot_depth);
    const auto lanes = static_cast<std::uint32_t>(std::clamp<std::size_t>(a_lane / least_slot_bytes, 1, most_lanes));
    const std::size_t fair = a_lane / lanes;
    const std::uint32_t slot_bytes = fair < most_slot_bytes ? static_cast<std::uint32_t>(fair) : most_slot_bytes;
    return {ranks, lanes, slot_bytes / kernels::piece_bytes * kernels::piece_bytes};
  }
  /// The counters, flags and labels at the start of an arena.
  static constexpr std::size_t header_bytes =
      (kernels::flags_offset_bytes + 2 * kernels::label_distance * sizeof(std::uint64_t) + 4095) / 4096 * 4096;

  constexpr std::size_t slots_bytes() const { return std::size_t{lanes} * kernels::slot_depth * slot_bytes; }
  constexpr std::size_t down(std::uint32_t rank) const { return rank * header_bytes; }
  constexpr std::size_t results() const { return ranks * header_bytes; }
  /// The same in both arenas of a rank's ring.
  constexpr std::size_t slots_offset(std::uint32_t rank) const { return results() - down(rank); }
  constexpr std::size_t up(std::uint32_t rank) const {
    const std::size_t headers_before = std::size_t{ranks} * rank - rank * (rank - std::size_t{1}) / 2;
    return results() + slots_bytes() + rank * slots_bytes() + headers_before * header_bytes;
  }
  constexpr std::size_t uploads(std::uint32_t rank) const { return up(rank) + slots_offset(rank); }
  constexpr std::size_t size_bytes() const { return uploads(ranks - 1) + slots_bytes(); }

  constexpr kernels::ProtocolSlots protocol_slots(std::uint32_t rank) const {
    return {slots_offset(rank), slot_bytes, lanes};
  }
};

}  // namespace strait::cpu_reducers
