#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

namespace strait::doctor {

/// Returns the CPUs that this process may use, in ascending order.
std::vector<int> usable_cores();

/// Threads that measure together, each pinned to a core. They exist only during run().
class Team {
 public:
  explicit Team(std::vector<int> cores) : cores_(std::move(cores)) {}
  int size() const { return static_cast<int>(cores_.size()); }

  /// Runs body(thread) on all threads, and returns when all of them have returned.
  void run(const std::function<void(int)>& body);
  /// Called within the body: waits until all threads have called it. Polls, and from 10000 polls on yields the core.
  void meet();

 private:
  std::vector<int> cores_;
  std::atomic<std::uint64_t> arrived_{0};
};

/// Returns the time of the monotonic clock, in microseconds.
double now_us();

/// Measures the time from a store by one thread of the pair until the other, which polls for it, has seen it and
/// continues. If `yields`, the polling thread yields its core. A repeat takes a fraction of a millisecond, or some
/// milliseconds if the threads share a core.
double handover_us(Team& pair, bool yields, int repeats = 15);

/// Returns the first quartile of the times: a robust result on a machine that others use too.
double quick_quarter(std::vector<double> times);

}  // namespace strait::doctor
