#pragma once

#include <algorithm>
#include <array>
#include <cmath>
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
  double predicted_us = 0;                                ///< by the rates alone
  std::array<double, 2> measured_us{INFINITY, INFINITY};  ///< of even and odd passes, of each the quickest

  std::size_t count() const;  ///< as the call counts
  double best_us() const { return std::min(measured_us[0], measured_us[1]); }
  /// How much the two measurements differ.
  double spread() const { return std::max(measured_us[0], measured_us[1]) / best_us() - 1; }
};

/// What communicators of threads ask for over this transport: "loopback", or "shm" as processes would use it.
PlanRequest plan_request(const PlanTime& plan, const std::string& transport, bool order_free);
/// The clock as communicators of this machine have it.
ClockModel plan_clock(std::uint32_t ranks, const HostRates& rates);
constexpr std::size_t plan_slice_bytes = 128 << 10;  ///< what a slot of both transports holds

/// Every plan of all-reduce, all-gather, reduce-scatter and all-to-all, with its prediction. In order of ranks and
/// algorithms.
Result<std::vector<PlanTime>> plans_to_time(const std::string& transport, const std::vector<std::uint32_t>& rank_counts,
                                            const std::vector<std::size_t>& sizes_bytes, const HostRates& rates);

/// Measures all of them, `passes` times in turn, and those of an algorithm whose two measurements differ by more than
/// 5% again, up to `most_passes` times. Ranks are threads, calls run back to back on the same buffers, and the time is
/// the mean of a call in the quickest quarter of the blocks. `progress` is told after every pass how many of the plans
/// it left alone. Changes the environment: no other thread may run.
Status time_plans(std::vector<PlanTime>& plans, const std::string& transport, int passes, int most_passes,
                  const std::function<void(int pass, std::size_t settled, std::size_t all)>& progress);

}  // namespace strait::doctor
