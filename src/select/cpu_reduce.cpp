#include "select/cpu_reduce.hpp"

#include <algorithm>

#include "base/units.hpp"

namespace strait {

std::size_t cpu_reduce_border_bytes(std::uint32_t meeting, std::uint32_t crossing, std::uint32_t ranks,
                                    const ExchangeRates& rates) {
  // What five meeting ranks promise, 2(n-1)/n. Where CPUs add twice what the links bring, it is what four promise: of
  // that, four ranks behind one link gained 1.1 to 1.3 times; four H200, whose CPUs add hardly more than that, nothing.
  const bool is_ample = rates.sums_gbps >= 2 * ranks * rates.gbps;
  const double least_promise = (is_ample ? 1.5 : 1.6) * (1 - 1e-9);  // less a rounding error
  // What bytes must save at least. Eight ranks behind one link of 44 GB/s gained at all sizes, but threads that have
  // gone to sleep take 100 us more, and where few bytes are saved a busy CPU costs as much.
  constexpr double least_saved_us = 20;
  constexpr std::size_t least_bytes = 32 << 10;
  if (meeting < 2 || rates.gbps <= 0 || rates.sums_gbps <= 0) return 0;
  const double m = meeting, gbps = rates.gbps * ranks / crossing;
  const double by_gpus_us = 2 * (m - 1) / m / (gbps * bytes_per_us);  // per byte of the message
  const double by_cpus_us = std::max(1 / gbps, ranks / rates.sums_gbps) / bytes_per_us;
  if (by_gpus_us < least_promise * by_cpus_us) return 0;
  return std::max(least_bytes, static_cast<std::size_t>(least_saved_us / (by_gpus_us - by_cpus_us)));
}

std::uint32_t cpu_reducers_of_each(std::uint32_t wanted, std::uint32_t most, std::uint32_t ranks,
                                   std::size_t crossing) {
  return std::min(wanted, std::max(most / ranks, crossing <= most ? 1u : 0u));
}

}  // namespace strait
