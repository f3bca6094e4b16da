#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/clock.hpp"
#include "plan/request.hpp"

/// What plans of host ranks really take, one by one, beside what the clock predicts.
namespace strait::doctor {

/// One plan, of int32 (sums where it reduces): every algorithm may be taken for those.
struct PlanTime {
  Collective collective = Collective::all_reduce;
  std::uint32_t ranks = 2;
  std::size_t bytes = 0;  ///< of the larger of a rank's buffers
  std::string algorithm;
  bool rank_order = false;                         ///< may be taken for sums of floats too
  double predicted_us = 0;                         ///< by the rates alone
  std::array<std::vector<double>, 2> blocks_us{};  ///< of a call, by window; first and second half of the time
  std::array<double, 3> times_us{};                ///< what that comes to (compare_plans()): each half, and all

  std::size_t count() const;  ///< as the call counts
  /// What a call takes, in all of the time or in one half. Infinity: not measured.
  double measured_us() const { return times_us[2]; }
  double measured_us(std::size_t half) const { return times_us[half]; }
  /// How much the two halves differ.
  double spread() const;
};

/// What communicators of threads ask for over this transport: "loopback", or "shm" as processes would use it.
PlanRequest plan_request(const PlanTime& plan, const std::string& transport, bool order_free);
/// The clock as communicators of this machine have it.
ClockModel plan_clock(std::uint32_t ranks, const HostRates& rates);
constexpr std::size_t plan_slice_bytes = 128 << 10;  ///< what a slot of both transports holds

/// Every plan of all-reduce, all-gather, reduce-scatter and all-to-all, with its prediction. Those of one call are
/// beside one another.
Result<std::vector<PlanTime>> plans_to_time(const std::string& transport, const std::vector<std::uint32_t>& rank_counts,
                                            const std::vector<std::size_t>& sizes_bytes, const HostRates& rates);

/// What plans take, from their blocks. Those that were measured in the same windows are compared window by window: each
/// takes the middle one of its multiples of what all of them took in the window, and all of them what they took in the
/// quickest quarter. So none is judged by better windows than another. Those far behind, which were measured in fewer,
/// take the quickest quarter of their own.
void compare_plans(std::vector<PlanTime>& plans);

/// How a measurement went.
struct PlanTiming {
  int windows = 0;          ///< of all plans of a call, one after the other
  int strange_windows = 0;  ///< of those, left out because the processors were not as they were at calibration
  bool strange = false;     ///< there were too few others for some plans, so that these are measured in such too
};

/// Measures each plan in twelve windows of either half, with a new communicator and buffers every third one; a plan
/// that takes more than twice as long as another in rank order only in three.
///
/// A window takes all plans of a call one after the other, a block of calls each, on the same communicator and buffers,
/// each time beginning with the next one: the first finds the caches as another call left them. A virtual machine's
/// processors wander over those of its host, from a shared core to another socket and back within seconds; then signals
/// between them take a third or three times as long, and other plans are the fastest. So `latency_us`, what a signal
/// took when the rates were measured, is measured before and after each window, and a window in which it is another is
/// left out (0: none is). Ranks are threads, the calls of a block run back to back. `progress` is told how many of the
/// calls are done. Changes the environment: no other thread may run.
Result<PlanTiming> time_plans(std::vector<PlanTime>& plans, const std::string& transport, double latency_us,
                              const std::function<void(std::size_t done, std::size_t all)>& progress);

}  // namespace strait::doctor
