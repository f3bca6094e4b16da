#include "doctor/calibrate_plans.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "doctor/calibrate.hpp"
#include "doctor/team.hpp"
#include "doctor/time_plans.hpp"
#include "select/calibration.hpp"

namespace strait::doctor {
namespace {

constexpr int passes = 4, most_passes = 20;
const std::vector<std::size_t> sizes_bytes{1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 32 << 20};

std::vector<std::uint32_t> usual_rank_counts() {
  constexpr std::size_t most_ranks = 16;
  std::vector<std::uint32_t> counts{2, 4};
  const auto cores = static_cast<std::uint32_t>(std::min(most_ranks, usable_cores().size()));
  if (cores > 1 && std::find(counts.begin(), counts.end(), cores) == counts.end()) counts.push_back(cores);
  return counts;
}

double median_error(const std::vector<PlanTime>& plans) {
  std::vector<double> errors;
  for (const PlanTime& plan : plans) errors.push_back(std::abs(plan.predicted_us / plan.best_us() - 1));
  std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2), errors.end());
  return errors[errors.size() / 2];
}

Status measure(const std::string& path, const std::string& transport, const std::vector<std::uint32_t>& rank_counts,
               const HostRates& rates) {
  STRAIT_ASSIGN(auto plans, plans_to_time(transport, rank_counts, sizes_bytes, rates));
  const bool shows = isatty(fileno(stderr)) != 0;
  STRAIT_TRY(time_plans(plans, transport, passes, most_passes, [&](int pass, std::size_t settled, std::size_t all) {
    if (shows)
      fmt::print(stderr, "\r{}: pass {} of at most {}, {} of {} plans are settled ", transport, pass, most_passes,
                 settled, all);
  }));
  if (shows) fmt::print(stderr, "\n");
  RatiosByTransport ratios;
  for (const PlanTime& plan : plans)
    ratios[ratios_key(transport, plan.ranks)].add(plan.collective, plan.algorithm, plan.bytes,
                                                  std::clamp(plan.best_us() / plan.predicted_us, 0.02, 50.0));
  fmt::print("{}: {} plans, by the rates alone the median is predicted {:.0f}% off\n", transport, plans.size(),
             100 * median_error(plans));
  return update_calibration(path, machine_fingerprint(), [&](Calibration& calibration) {
    for (auto& [key, measured] : ratios) calibration.plans[key] = std::move(measured);
  });
}

Status measure_all(const std::string& wanted_path, const std::vector<std::uint32_t>& rank_counts) {
  STRAIT_ASSIGN(const std::string path, calibration_file(wanted_path));
  STRAIT_ASSIGN(const UniqueFd turn, take_turn(path));
  STRAIT_ASSIGN(const Calibration calibration, load_calibration(path, machine_fingerprint()));
  const double began_us = now_us();
  for (const char* transport : {"loopback", "shm"}) STRAIT_TRY(measure(path, transport, rank_counts, calibration.host));
  fmt::print("\nMeasured in {:.0f} s and saved as {}\n", (now_us() - began_us) * 1e-6, path);
  return {};
}

}  // namespace

int calibrate_plans(const std::string& path, std::vector<std::uint32_t> rank_counts) {
  if (rank_counts.empty()) rank_counts = usual_rank_counts();
  const Status status = measure_all(path, rank_counts);
  if (status) return 0;
  fmt::print(stderr, "strait doctor: {}\n", status.error().message);
  return 2;
}

}  // namespace strait::doctor
