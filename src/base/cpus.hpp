#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strait {

/// Returns the CPUs that the calling thread may run on, in ascending order; never empty. On systems with more CPUs than
/// cpu_set_t can name (CPU_SETSIZE), returns the CPUs from 0 on, as many as there are but at most CPU_SETSIZE.
std::vector<std::uint32_t> allowed_cpus();

/// What a control group (docker --cpus, resources.limits.cpu) allows its processes of the CPUs' time.
struct CpuQuota {
  double cores = 0;         ///< cores' worth of time; 0: unlimited or unknown
  std::uint64_t group = 0;  ///< the same for the processes of a host that have this quota together; 0: unlimited
};
/// Returns the lowest quota of this process's control group and the groups above it. `root` precedes /proc and /sys.
CpuQuota cpu_quota(const std::string& root = "");
/// Returns for how many of `cpus` CPUs there is time: no more than the quota rounded up.
std::uint32_t within_quota(std::size_t cpus, const CpuQuota& quota);

/// Parses a CPU list as sysfs writes it: "0-3,8" gives 0, 1, 2, 3, 8, and "" gives an empty list. Returns nullopt if
/// any part is malformed or any number is not below `end`.
std::optional<std::vector<std::uint32_t>> cpus_of_list(std::string_view list, std::uint32_t end);

}  // namespace strait
