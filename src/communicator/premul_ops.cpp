// Reductions that users create: sums of contributions that are multiplied first.
#include <atomic>

#include "communicator/comm.hpp"

namespace strait {

std::uint32_t Comm::add_premul(const PremulOp& op) {
  // The user knows the operation by this number, beyond those of the built-in operations, as an int. Numbers are unique
  // in the process, so that an operation of another communicator is not taken for one of this.
  constexpr std::uint32_t numbers = 1u << 30;
  static std::atomic<std::uint32_t> next{0};
  std::uint32_t id = 0;
  do id = next.fetch_add(1, std::memory_order_relaxed) % numbers;
  while (premul_ops_.contains(id));
  premul_ops_[id] = op;
  return id;
}

Status Comm::remove_premul(std::uint32_t id) {
  if (premul_ops_.erase(id) == 0) return fail(Code::invalid_argument, "this reduction was not created, or destroyed");
  return {};
}

const Comm::PremulOp* Comm::find_premul(std::uint32_t id) const {
  const auto found = premul_ops_.find(id);
  return found == premul_ops_.end() ? nullptr : &found->second;
}

}  // namespace strait
