#pragma once

#include <chrono>
#include <optional>
#include <thread>

#include "executor/copy_engine/wait.hpp"

namespace strait::testing {

/// The first wait for that rank, or for any where none is given, that has lasted for a while; what is waited for
/// instead where none comes within 20 seconds. On a busy machine ranks that do come are late, too.
template <typename Copies>
std::optional<copy_engine::Wait> await_standstill(Copies& copies, std::optional<std::uint32_t> rank = {}) {
  using namespace std::chrono_literals;
  std::optional<copy_engine::Wait> wait;
  const auto stands = [&] { return wait && wait->duration >= 30ms && (!rank || wait->rank == *rank); };
  const auto give_up = std::chrono::steady_clock::now() + 20s;
  while (!stands() && std::chrono::steady_clock::now() < give_up) {
    wait = copies.wait();
    std::this_thread::sleep_for(1ms);
  }
  return wait;
}

}  // namespace strait::testing
