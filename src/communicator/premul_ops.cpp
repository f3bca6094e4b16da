#include "communicator/premul_ops.hpp"

#include <atomic>

namespace strait {

std::uint32_t PremulOps::add(const PremulOp& op) {
  // The user knows the operation by this number, beyond those of the built-in operations, as an int. Numbers are unique
  // in the process, so that an operation of another communicator is not taken for one of this.
  constexpr std::uint32_t numbers = 1u << 30;
  static std::atomic<std::uint32_t> next{0};
  std::uint32_t id = 0;
  do id = next.fetch_add(1, std::memory_order_relaxed) % numbers;
  while (by_id_.contains(id));
  by_id_[id] = op;
  return id;
}

Status PremulOps::remove(std::uint32_t id) {
  if (by_id_.erase(id) == 0) return fail(Code::invalid_argument, "this reduction was not created, or destroyed");
  return {};
}

const PremulOp* PremulOps::find(std::uint32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

}  // namespace strait
