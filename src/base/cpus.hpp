#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace strait {

/// The CPUs that the calling thread may run on, lowest first; at least one. Where there are more than the system's
/// interface can name, as many as there are, up to those.
std::vector<std::uint32_t> allowed_cpus();

/// "0-3,8": 0, 1, 2, 3, 8; of "" none. Nothing where any of it is malformed, or a number not below `end`.
std::optional<std::vector<std::uint32_t>> cpus_of_list(std::string_view list, std::uint32_t end);

}  // namespace strait
