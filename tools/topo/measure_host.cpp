#include <algorithm>

#include "doctor/measure.hpp"
#include "doctor/team.hpp"
#include "topo/measurements.hpp"

namespace strait::topo {
namespace {

constexpr std::size_t most_cpus = 16;  // larger matrices are hard to read

/// Returns all CPUs, or as many as fit, spread evenly so that every socket is included.
std::vector<int> selection(const std::vector<int>& cpus) {
  const std::size_t count = std::min(cpus.size(), most_cpus);
  std::vector<int> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(cpus[i * cpus.size() / count]);
  return some;
}

}  // namespace

HostMeasurements measure_host() {
  const std::vector<int> usable = doctor::usable_cores();
  HostMeasurements found;
  found.cpus = selection(usable);
  const std::size_t count = found.cpus.size();
  found.copy_gbps.assign(count, std::vector<double>(count));
  found.latency_us = found.copy_gbps;
  HostRates rates;
  for (std::size_t a = 0; a < count; ++a)
    for (std::size_t b = a + 1; b < count; ++b) {
      doctor::Team pair({found.cpus[a], found.cpus[b]});
      doctor::measure_between_cores(pair, rates);  // both directions at the same time
      found.copy_gbps[a][b] = found.copy_gbps[b][a] = rates.memory.fetch_gbps;
      found.latency_us[a][b] = found.latency_us[b][a] = doctor::handover_us(pair, false);
    }
  rates = doctor::measure_memory();
  found.all_gbps = rates.memory.fetch_gbps;
  found.dram_copy_gbps = rates.dram_copy_gbps;
  return found;
}

}  // namespace strait::topo
