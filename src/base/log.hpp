#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace strait {

enum class LogLevel : std::uint8_t { off = 0, warn = 1, info = 2, trace = 3 };

/// Whether messages of this level are written. STRAIT_DEBUG decides; it is read at the first use.
bool log_enabled(LogLevel level);
/// Sets the level, in place of STRAIT_DEBUG.
void set_log_level(LogLevel level);

/// Writes one line to stderr with a single write(2), so that lines of several threads and processes do not mix:
/// "strait: <host>:<pid> rank <rank>: <message>". Without " rank <rank>" if `rank` is negative. A message that is
/// longer than what a pipe takes at once becomes several lines, which begin with "... " from the second one on. A line
/// that stderr does not take soon is lost. Never changes errno.
void log(LogLevel level, int rank, std::string_view message);

inline void log_warn(int rank, std::string_view message) { log(LogLevel::warn, rank, message); }
inline void log_info(int rank, std::string_view message) { log(LogLevel::info, rank, message); }
inline void log_trace(int rank, std::string_view message) { log(LogLevel::trace, rank, message); }

}  // namespace strait
