#pragma once

#include <memory>
#include <vector>

#include "base/types.hpp"
#include "device/p2p_setting.hpp"
#include "executor/cuda/runtime.hpp"
#include "gpu/race_hunt/calls.hpp"

/// Inputs of all ranks in every type, and the results of every reduction of them, element by element. Any range of the
/// tables serves as a call's input and its expected result, so checking a call costs no more than a comparison.
namespace strait::race {

using Bytes = std::vector<std::byte>;

inline constexpr int op_count = static_cast<int>(ReduceOp::avg) + 1;

class HostTables {
 public:
  /// Reduces the inputs as `islands` do, if there are any, otherwise in rank order.
  HostTables(const Limits& limits, std::uint64_t seed, const std::vector<Island>& islands);

  const Bytes& input(DataType type, std::uint32_t rank) const { return inputs_[index(type)][rank]; }
  const Bytes& reduced(DataType type, ReduceOp op) const { return reduced_[index(type)][static_cast<std::size_t>(op)]; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(inputs_[0].size()); }

 private:
  static std::size_t index(DataType type) { return static_cast<std::size_t>(type); }
  std::vector<std::vector<Bytes>> inputs_;   ///< [type][rank]
  std::vector<std::vector<Bytes>> reduced_;  ///< [type][op]
};

/// A copy of the tables in the memory of one GPU.
class DeviceTables {
 public:
  static Result<DeviceTables> upload(const HostTables& host, int device);

  const std::byte* input(DataType type, std::uint32_t rank) const { return at(type, rank).data(); }
  const std::byte* reduced(DataType type, ReduceOp op) const {
    return at(type, ranks_ + static_cast<std::uint32_t>(op)).data();
  }
  /// Returns whether the tables are unchanged.
  Result<bool> is_intact(const HostTables& host) const;

 private:
  const cuda::DeviceMemory& at(DataType type, std::uint32_t which) const {
    return memory_[static_cast<std::size_t>(type) * (ranks_ + op_count) + which];
  }
  int device_ = 0;
  std::uint32_t ranks_ = 0;
  std::vector<cuda::DeviceMemory> memory_;  ///< [type][rank, then op]
};

}  // namespace strait::race
