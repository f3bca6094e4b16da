#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace strait {

/// Formats a time with its unit: "12.5 us", "1.3 ms", "2.05 s".
inline std::string time_text(double time_us) {
  std::array<char, 32> text{};
  if (time_us < 1e3)
    std::snprintf(text.data(), text.size(), "%.1f us", time_us);
  else if (time_us < 1e6)
    std::snprintf(text.data(), text.size(), "%.1f ms", time_us * 1e-3);
  else
    std::snprintf(text.data(), text.size(), "%.2f s", time_us * 1e-6);
  return text.data();
}

}  // namespace strait
