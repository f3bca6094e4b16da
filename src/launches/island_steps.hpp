#pragma once

#include <cstddef>
#include <cstdint>

#include "launches/device_islands.hpp"

/// Helpers with which DeviceIslands makes its steps.
namespace strait::island_steps {

inline const std::byte* at(const void* buffer, std::size_t element, DataType type) {
  return static_cast<const std::byte*>(buffer) + element * size_bytes(type);
}
inline std::byte* at(void* buffer, std::size_t element, DataType type) {
  return static_cast<std::byte*>(buffer) + element * size_bytes(type);
}

/// Returns a step of `whole`. Within islands sums are partial, so nothing is divided yet. Across islands every
/// contribution has already been multiplied by its scalar.
inline IslandStep step(IslandStep::Among among, const Call& whole, Collective collective, const void* send,
                       void* receive, std::size_t count) {
  using Among = IslandStep::Among;
  IslandStep step{among, {}};
  step.call.collective = collective;
  step.call.type = whole.type;
  step.call.op = whole.op;
  if (among == Among::island && whole.op == ReduceOp::avg) step.call.op = ReduceOp::sum;
  if (among == Among::across && whole.op == ReduceOp::premul_sum) step.call.op = ReduceOp::sum;
  if (among == Among::across) step.call.wire = whole.wire;  // where bytes are scarce
  // A step without a root compares this between ranks in place of the root.
  step.call.root = whole.wire == WireFormat::off ? whole.root : hash_of(signature(whole));
  step.call.premul_scalar = whole.premul_scalar;
  step.call.count = count;
  step.call.send = send;
  step.call.receive = receive;
  step.call.stream = whole.stream;
  step.call.max_sms = whole.max_sms;
  return step;
}

inline IslandStep rooted(IslandStep step, std::uint32_t root) {
  step.call.root = root;
  return step;
}

}  // namespace strait::island_steps
