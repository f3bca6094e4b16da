#include "plan/clock.hpp"

#include <algorithm>

#include "base/units.hpp"

namespace strait {

namespace {

double beyond_us(double bytes, double gbps, double cached_gbps) {
  return gbps > 0 ? std::max(0.0, bytes / gbps - bytes / cached_gbps) / bytes_per_us : 0;
}

}  // namespace

double ClockModel::move_us(const Step& step, double bytes) const {
  const double copy_us = bytes / (copy_gbps * bytes_per_us);
  const double further_us = memory.two_copies_gbps > 0
                                ? std::max(0.0, bytes / (memory.two_copies_gbps * bytes_per_us) - copy_us)
                                : copy_us / 2;
  const double once_us =
      step.reduces ? static_cast<double>(step.sources.size()) * bytes / (reduce_gbps * bytes_per_us) : copy_us;
  return once_us + (step.destinations.size() > 1 ? static_cast<double>(step.destinations.size() - 1) * further_us : 0);
}

double ClockModel::extra_us(double bytes, double gbps) const { return beyond_us(bytes, gbps, copy_gbps); }

double ClockModel::replace_us_per_byte(Writes destination) const {
  const bool measured_beside = memory.replace_beside_gbps > 0 && memory.two_copies_gbps > 0;
  return destination == Writes::beside && measured_beside
             ? beyond_us(1, memory.replace_beside_gbps, memory.two_copies_gbps)
             : extra_us(1, memory.replace_gbps);
}

ClockModel host_model(std::uint32_t ranks, std::uint32_t cores, const HostRates& rates, std::uint32_t writers) {
  ClockModel model;
  model.ranks = ranks;
  model.call_us = rates.call_us;
  model.step_us = rates.step_us;
  model.copy_gbps = rates.copy_gbps;
  model.reduce_gbps = rates.reduce_gbps;
  model.cores = cores;
  model.switch_us = rates.switch_us;
  model.cache_bytes = rates.cache_bytes;
  model.dram_gbps = rates.dram_copy_gbps;
  model.memory = rates.memory;
  model.paths.assign(std::size_t{std::min(ranks, writers)} * ranks,
                     {.latency_us = rates.latency_us, .gbps = 0, .resources = {}});
  return model;
}

}  // namespace strait
