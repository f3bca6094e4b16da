#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

namespace strait::doctor {

/// The processors this process may use, lowest first.
std::vector<int> usable_cores();

/// Threads that measure together, each pinned to a core.
class Team {
 public:
  explicit Team(std::vector<int> cores) : cores_(std::move(cores)) {}
  int size() const { return static_cast<int>(cores_.size()); }

  /// Runs body(thread) on all of them; returns when all are done.
  void run(const std::function<void(int)>& body);
  /// Inside body: waits until all have come, without giving up the core for long.
  void meet();

 private:
  std::vector<int> cores_;
  std::atomic<std::uint64_t> arrived_{0};
};

/// Microseconds on the monotonic clock.
double now_us();

/// From one thread's store until the other of the pair, which waits for it, has seen it and goes on; `yields`: it gives
/// up the core while it waits. A fraction of a millisecond for each of the repeats.
double handover_us(Team& pair, bool yields, int repeats = 15);

/// What a measurement says of a machine that others use too: the value that a quarter of the times stay below.
double quick_quarter(std::vector<double> times);

}  // namespace strait::doctor
