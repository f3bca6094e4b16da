#include "plan/clock.hpp"

#include <algorithm>

namespace strait {

double ClockModel::replace_us_per_byte(Writes destination) const {
  constexpr double bytes_per_us = 1e3;  // one GB/s in bytes per microsecond
  const auto beyond = [](double gbps, double cached_gbps) {
    return gbps > 0 ? std::max(0.0, 1 / gbps - 1 / cached_gbps) / bytes_per_us : 0;
  };
  const bool measured_beside = memory.replace_beside_gbps > 0 && memory.two_copies_gbps > 0;
  return destination == Writes::beside && measured_beside ? beyond(memory.replace_beside_gbps, memory.two_copies_gbps)
                                                          : beyond(memory.replace_gbps, copy_gbps);
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
