#include "perf/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace strait::perf {

double percentile(std::span<double> samples, double percent) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double position = std::ceil(percent / 100 * static_cast<double>(samples.size()));
  return samples[static_cast<std::size_t>(std::clamp(position, 1.0, static_cast<double>(samples.size()))) - 1];
}

double ratio(const Measurement& ours, const Measurement& baseline) {
  return ours.time_us > 0 ? baseline.time_us / ours.time_us : 0;
}

std::string BaselineInfo::name() const {
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Summary summarise(std::span<const Row> rows) {
  Summary summary;
  std::size_t measurements = 0, compared = 0;
  double log_ratios = 0;
  auto add = [&](const Measurement& m, const std::optional<Measurement>& baseline) {
    summary.mean_bus_gbps += m.bus_gbps;
    summary.wrong += m.wrong.value_or(0);
    ++measurements;
    if (!baseline) return;
    log_ratios += std::log(ratio(m, *baseline));
    ++compared;
  };
  for (const Row& row : rows) {
    add(row.out_of_place, row.baseline_out_of_place);
    if (row.in_place) add(*row.in_place, row.baseline_in_place);
  }
  if (measurements != 0) summary.mean_bus_gbps /= static_cast<double>(measurements);
  if (compared != 0) summary.mean_ratio = std::exp(log_ratios / static_cast<double>(compared));
  return summary;
}

}  // namespace strait::perf
