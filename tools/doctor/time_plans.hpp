#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/clock.hpp"
#include "plan/request.hpp"

/// Measures how long plans of host ranks take, one by one, for comparison with the clock's predictions.
namespace strait::doctor {

/// The time of one plan, for int32 (sums, if it reduces), because selection may choose every algorithm for these.
struct PlanTime {
  Collective collective = Collective::all_reduce;
  std::uint32_t ranks = 2;
  std::size_t bytes = 0;  ///< size of the larger of a rank's two buffers
  std::string algorithm;
  bool rank_order = false;  ///< whether it may also be chosen for sums of floats
  double predicted_us = 0;  ///< predicted from the rates alone
  /// Time of a call in each window, in the first and the second half of the measurement.
  std::array<std::vector<double>, 2> blocks_us{};
  std::array<double, 3> times_us{};  ///< the results of compare_plans(): first half, second half, all

  std::size_t count() const;  ///< the count argument of the call
  /// Returns the time of a call, of the whole measurement or of one half. Infinity: not measured.
  double measured_us() const { return times_us[2]; }
  double measured_us(std::size_t half) const { return times_us[half]; }
  /// Returns the relative difference of the two halves.
  double spread() const;
};

/// Returns the request that communicators of threads make over this transport: "loopback", or "shm" as used between
/// processes.
PlanRequest plan_request(const PlanTime& plan, const std::string& transport);
/// Returns the clock that communicators of this machine use.
ClockModel plan_clock(std::uint32_t ranks, const HostRates& rates);
constexpr std::size_t plan_slice_bytes = 128 << 10;  ///< size of a slot of both transports

/// Returns every plan of all-reduce, all-gather, reduce-scatter and all-to-all with its prediction. Plans of the same
/// call are adjacent.
Result<std::vector<PlanTime>> plans_to_time(const std::string& transport, const std::vector<std::uint32_t>& rank_counts,
                                            const std::vector<std::size_t>& sizes_bytes, const HostRates& rates);

/// Sets the times of plans from their blocks. Plans that were measured in the same windows are compared window by
/// window, so that none has an advantage from better windows: the time of a plan is the median of its ratios to the
/// window's level (the geometric mean of these plans), times the first quartile of the levels. A plan far behind, which
/// was measured in fewer windows, gets the first quartile of its own blocks.
void compare_plans(std::vector<PlanTime>& plans);

/// Statistics of a measurement.
struct PlanTiming {
  int windows = 0;  ///< windows, in each of which all plans of a call take turns
  /// Windows left out because the processors were not in the state in which they were calibrated.
  int strange_windows = 0;
  /// Whether some plans had to be measured in such windows too, because there were too few others.
  bool strange = false;
};

/// Measures each plan in 24 windows in each half of the measurement, with a new communicator and new buffers for every
/// two windows. Two windows are enough for a plan that is far slower than another plan in rank order (30% slower, or
/// twice as slow while it has less than eight windows).
///
/// In a window all plans of a call take turns on the same communicator and buffers, each with a block of calls back to
/// back. Each window begins with another plan, because the first one finds the caches as another call left them. Ranks
/// are threads.
///
/// The host of a virtual machine moves its processors, from a shared core to another socket and back within seconds.
/// Then signals between them take a third or three times as long, and other plans are the fastest. So the time of a
/// signal is measured before and after each window, and the window is left out if that differs from `latency_us`, the
/// time at calibration (0: no window is left out).
///
/// `progress` is called with the number of measurements that are done; each plan counts twice, once per half. Changes
/// the environment, so no other thread may run.
Result<PlanTiming> time_plans(std::vector<PlanTime>& plans, const std::string& transport, double latency_us,
                              const std::function<void(std::size_t done, std::size_t all)>& progress);

}  // namespace strait::doctor
