#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "nccl/nccl_abi.h"
#include "strait/strait.h"

/// Settings of the drop-in library from the environment, and its messages on stderr.
namespace strait::nccl {

/// Translates the NCCL_* settings that have a meaning here to Strait's settings, unless those are set. Must be called
/// before any other use of Strait; calls after the first do nothing.
void apply_settings();

/// Returns the NCCL version that is reported to programs (STRAIT_NCCL_VERSION), such as 22809.
int served_version();
/// The version used if STRAIT_NCCL_VERSION has an invalid value. Equal to the default of that setting, which
/// tests/abi/config_test.cpp checks.
inline constexpr int default_version = 22809;
/// Returns STRAIT_NCCL_HOST_RANKS: whether communicators consist of host ranks (for tests).
bool makes_host_ranks();
/// Returns NCCL_COMM_BLOCKING, which overrides `blocking` of configurations; nothing if it is not set to 0 or 1.
std::optional<bool> forced_blocking();
/// Whether STRAIT_MAX_SMS (or NCCL_MAX_CTAS) bounds the thread blocks of operations, overriding configurations.
bool environment_bounds_sms();

/// Reports once per process which file serves which NCCL version: always if STRAIT_NCCL_PROOF=1, otherwise at log level
/// info. Also reports ignored settings (at level info) and other NCCL libraries in the process.
void announce(int rank, int ranks);
/// Warns, once per process, of settings for NCCL's networks if the communicator's data goes between hosts: users of
/// InfiniBand would not notice that it goes by TCP.
void report_ignored_networks(straitComm_t comm);
/// Reports at log level info which fields of a configuration are ignored, each once per process.
void report_ignored_fields(const std::vector<const char*>& names);

enum class LogLevel { warn, info };
/// Writes one line to stderr if STRAIT_DEBUG (or NCCL_DEBUG) admits the level.
void log(LogLevel level, std::string_view text);

}  // namespace strait::nccl
