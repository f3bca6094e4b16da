#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace strait {

/// Returns the CPUs that the calling thread may run on, in ascending order; never empty. On systems with more CPUs than
/// cpu_set_t can name (CPU_SETSIZE), returns the CPUs from 0 on, as many as there are but at most CPU_SETSIZE.
std::vector<std::uint32_t> allowed_cpus();

/// Parses a CPU list as sysfs writes it: "0-3,8" gives 0, 1, 2, 3, 8, and "" gives an empty list. Returns nullopt if
/// any part is malformed or any number is not below `end`.
std::optional<std::vector<std::uint32_t>> cpus_of_list(std::string_view list, std::uint32_t end);

}  // namespace strait
