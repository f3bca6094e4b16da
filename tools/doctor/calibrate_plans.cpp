#include "doctor/calibrate_plans.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "doctor/calibrate.hpp"
#include "doctor/team.hpp"
#include "doctor/time_plans.hpp"
#include "doctor/turn.hpp"
#include "safe_print.hpp"
#include "select/calibration.hpp"

namespace strait::doctor {
namespace {

constexpr double least_ratio = 0.02, most_ratio = 50;  // limits of the calibration file
const std::vector<std::size_t> usual_sizes_bytes{1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 32 << 20};

std::vector<std::uint32_t> usual_rank_counts() {
  constexpr std::size_t most_ranks = 16;
  std::vector<std::uint32_t> counts{2, 4};
  const auto cores = static_cast<std::uint32_t>(std::min(most_ranks, usable_cores().size()));
  if (cores > 1 && std::find(counts.begin(), counts.end(), cores) == counts.end()) counts.push_back(cores);
  return counts;
}

double median_error(const std::vector<PlanTime>& plans) {
  std::vector<double> errors;
  for (const PlanTime& plan : plans) errors.push_back(std::abs(plan.predicted_us / plan.measured_us() - 1));
  std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2), errors.end());
  return errors[errors.size() / 2];
}

Status measure(const std::string& path, const std::string& transport, const std::vector<std::uint32_t>& rank_counts,
               const std::vector<std::size_t>& sizes_bytes, const HostRates& rates) {
  STRAIT_ASSIGN(auto plans, plans_to_time(transport, rank_counts, sizes_bytes, rates));
  const bool shows = isatty(fileno(stderr)) != 0;
  STRAIT_ASSIGN(const PlanTiming timing,
                time_plans(plans, transport, rates.latency_us, [&](std::size_t done, std::size_t all) {
                  if (shows) tools::print(stderr, "\r{}: {} of {} measurements ", transport, done, all);
                }));
  if (shows) tools::print(stderr, "\n");
  tools::print(stdout, "{}: {} plans, by the rates alone the median is predicted {:.0f}% off\n", transport,
               plans.size(), 100 * median_error(plans));
  if (timing.strange_windows > 0)
    tools::print(stdout, "  in {:.0f}% of the time the processors were not as they were at calibration: {}\n",
                 100.0 * timing.strange_windows / timing.windows,
                 timing.strange ? "some plans were measured then. Calibrate again, on an idle machine" : "left out");
  return update_calibration(path, machine_fingerprint(), [&](Calibration& calibration) {
    for (const PlanTime& plan : plans)
      calibration.plans[ratios_key(transport, plan.ranks)].add(
          plan.collective, plan.algorithm, plan.bytes,
          std::clamp(plan.measured_us() / plan.predicted_us, least_ratio, most_ratio));
  });
}

Status measure_all(const std::string& wanted_path, const std::vector<std::uint32_t>& rank_counts,
                   const std::vector<std::size_t>& sizes_bytes) {
  STRAIT_ASSIGN(const std::string path, calibration_file(wanted_path));
  STRAIT_TRY(load_calibration(path, machine_fingerprint()));  // fails before any file is created
  STRAIT_ASSIGN(const Turn turn, take_turn(path));
  STRAIT_ASSIGN(const Calibration calibration, load_calibration(path, machine_fingerprint()));
  const double began_us = now_us();
  for (const char* transport : {"loopback", "shm"})
    STRAIT_TRY(measure(path, transport, rank_counts, sizes_bytes, calibration.host));
  tools::print(stdout, "\nMeasured in {:.0f} s and saved as {}\n", (now_us() - began_us) * 1e-6, path);
  return {};
}

}  // namespace

int calibrate_plans(const std::string& path, std::vector<std::uint32_t> rank_counts,
                    std::vector<std::size_t> sizes_bytes) {
  if (rank_counts.empty()) rank_counts = usual_rank_counts();
  if (sizes_bytes.empty()) sizes_bytes = usual_sizes_bytes;
  const Status status = measure_all(path, rank_counts, sizes_bytes);
  if (status) return 0;
  tools::print(stderr, "strait doctor: {}\n", status.error().message);
  return 2;
}

}  // namespace strait::doctor
