#include "doctor/measure_rate.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.hpp"

namespace strait::doctor {

double rate_of(Team& team, std::size_t bytes, int times, const std::function<void(int)>& work) {
  std::vector<std::vector<double>> taken(static_cast<std::size_t>(team.size()));
  team.run([&](int thread) {
    work(thread);
    for (int i = 0; i < times; ++i) {
      team.meet();
      const double began = now_us();
      work(thread);
      taken[static_cast<std::size_t>(thread)].push_back(now_us() - began);
    }
  });
  double slowest_us = 0;
  for (auto& times_us : taken) slowest_us = std::max(slowest_us, quick_quarter(std::move(times_us)));
  return static_cast<double>(bytes) / (slowest_us * bytes_per_us);
}

}  // namespace strait::doctor
