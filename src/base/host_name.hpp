#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace strait {

/// Returns this host's name as the kernel has it, with its domain if that is part of it; "unknown" if it has none.
inline std::string host_name() {
  std::array<char, 256> name{};
  const bool is_known = ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0';
  return is_known ? name.data() : "unknown";
}

}  // namespace strait
