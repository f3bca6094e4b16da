#pragma once

#include <cstdint>
#include <map>

#include "base/error.hpp"
#include "base/types.hpp"

namespace strait {

/// A reduction that the user created: a sum of contributions that are multiplied by `scalar` first.
struct PremulOp {
  DataType type;
  PremulScalar scalar;
};

/// The reductions that the user has created for a communicator.
class PremulOps {
 public:
  /// Returns the number by which the user knows the operation.
  std::uint32_t add(const PremulOp& op);
  Status remove(std::uint32_t id);
  /// Returns null if there is no such operation.
  const PremulOp* find(std::uint32_t id) const;

 private:
  std::map<std::uint32_t, PremulOp> by_id_;
};

}  // namespace strait
