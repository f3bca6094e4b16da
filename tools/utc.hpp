#pragma once

#include <ctime>
#include <string>

namespace strait::tools {

/// The time in UTC in a format of strftime(), by default such as 2026-11-20T09:30:00Z.
inline std::string utc_now(const char* format = "%Y-%m-%dT%H:%M:%SZ") {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

/// Such as 2026-11-20.
inline std::string utc_today() { return utc_now("%Y-%m-%d"); }

}  // namespace strait::tools
