#include "base/cpus.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <system_error>
#include <thread>

namespace strait {

std::vector<std::uint32_t> allowed_cpus() {
  cpu_set_t set;
  std::vector<std::uint32_t> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  } else {
    cpus.resize(std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, CPU_SETSIZE));
    std::iota(cpus.begin(), cpus.end(), 0u);
  }
  return cpus;
}

std::optional<std::vector<std::uint32_t>> cpus_of_list(std::string_view list, std::uint32_t end) {
  const auto number = [end](std::string_view digits) -> std::optional<std::uint32_t> {
    std::uint32_t value = 0;
    const char* const last = digits.data() + digits.size();
    const auto [after, error] = std::from_chars(digits.data(), last, value);
    if (error != std::errc{} || after != last || value >= end) return std::nullopt;
    return value;
  };
  std::vector<std::uint32_t> cpus;
  for (bool goes_on = !list.empty(); goes_on;) {
    const std::size_t comma = list.find(',');
    const std::string_view range = list.substr(0, comma);
    const std::size_t dash = range.find('-');
    const auto first = number(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number(range.substr(dash + 1));
    if (!first || !last || *first > *last) return std::nullopt;
    for (std::uint32_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    goes_on = comma != std::string_view::npos;
    if (goes_on) list.remove_prefix(comma + 1);
  }
  return cpus;
}

}  // namespace strait
