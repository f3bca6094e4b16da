#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "nccl/nccl_abi.h"

/// What the environment asks of the drop-in, and its lines on stderr.
namespace strait::nccl {

/// Carries the NCCL_* settings that have a meaning here over to Strait's, where those are not set. To be called before
/// anything else of Strait; only the first call does anything.
void apply_settings();

/// The version that programs are told (STRAIT_NCCL_VERSION), such as 22809.
int served_version();
/// Where that is set to what is none. Its default is the same (tests/abi/config_test.cpp).
inline constexpr int default_version = 22809;
/// STRAIT_NCCL_HOST_RANKS: communicators of host ranks, for tests.
bool makes_host_ranks();
/// NCCL_COMM_BLOCKING, which overrides what a configuration says.
std::optional<bool> forced_blocking();
/// STRAIT_MAX_SMS (or NCCL_MAX_CTAS) bounds the thread blocks of operations, whatever configurations say.
bool environment_bounds_sms();

/// Says, once a process, which file serves which version, where STRAIT_NCCL_PROOF or the log level asks for it; and on
/// the level info, which settings are ignored.
void announce(int rank, int ranks);
/// Says on the level info, of each once a process, which fields of a configuration are ignored.
void report_ignored_fields(const std::vector<const char*>& names);

enum class LogLevel { warn, info };
/// One line on stderr, if STRAIT_DEBUG (or NCCL_DEBUG) admits the level.
void log(LogLevel level, std::string_view text);

}  // namespace strait::nccl
