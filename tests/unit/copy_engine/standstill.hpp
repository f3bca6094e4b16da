#pragma once

#include <chrono>
#include <optional>
#include <thread>

#include "executor/copy_engine/wait.hpp"

namespace strait::testing {

/// Waits until `copies` reports a wait that has lasted for at least 30 ms, for `rank` if one is given, and returns it.
/// After 20 seconds, returns whatever `copies` waits for. The duration is checked because on a busy machine even ranks
/// that do come may be late for a short time.
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
