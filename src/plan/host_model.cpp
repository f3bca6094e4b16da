#include "plan/clock.hpp"

namespace strait {

ClockModel host_model(std::uint32_t ranks, std::uint32_t cores, const HostRates& rates) {
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
  model.paths.assign(std::size_t{ranks} * ranks, {.latency_us = rates.latency_us, .gbps = 0, .resources = {}});
  return model;
}

}  // namespace strait
