#pragma once

#include <algorithm>
#include <ctime>
#include <string>

namespace strait::tools {

/// A time in UTC in a format of strftime(), by default such as 2026-11-20T09:30:00Z.
inline std::string utc(std::time_t time, const char* format = "%Y-%m-%dT%H:%M:%SZ") {
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, format, &parts);
  return text;
}
inline std::string utc_now(const char* format = "%Y-%m-%dT%H:%M:%SZ") { return utc(std::time(nullptr), format); }

/// Such as 2026-11-20 09:30:00 UTC, of microseconds since 1970.
inline std::string utc_of(double unix_us) {
  constexpr double year_9999_s = 253'370'764'800;
  return utc(static_cast<std::time_t>(std::clamp(unix_us * 1e-6, 0.0, year_9999_s)), "%Y-%m-%d %H:%M:%S UTC");
}

/// Such as 2026-11-20.
inline std::string utc_today() { return utc_now("%Y-%m-%d"); }

}  // namespace strait::tools
