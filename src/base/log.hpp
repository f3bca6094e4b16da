#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace strait {

enum class LogLevel : std::uint8_t { off = 0, warn = 1, info = 2, trace = 3 };

/// Whether a message of this level would be written: what STRAIT_DEBUG says, read at the first use.
bool log_enabled(LogLevel level);
/// Overrides STRAIT_DEBUG.
void set_log_level(LogLevel level);

/// Writes one line to stderr, in one piece even when threads and processes log at once:
/// "strait: <host>:<pid> rank <rank>: <message>". A negative rank is left out. Never changes errno.
void log(LogLevel level, int rank, std::string_view message);

inline void log_warn(int rank, std::string_view message) { log(LogLevel::warn, rank, message); }
inline void log_info(int rank, std::string_view message) { log(LogLevel::info, rank, message); }
inline void log_trace(int rank, std::string_view message) { log(LogLevel::trace, rank, message); }

}  // namespace strait
