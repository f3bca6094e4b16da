#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"

/// Files in the user's cache folder that programs read and write concurrently.
namespace strait {

/// Returns $XDG_CACHE_HOME/strait/<name>, or the same below ~/.cache if XDG_CACHE_HOME is not set; an error if HOME is
/// not set either. `what` describes the contents, for the error.
Result<std::string> cache_path(const Environment& environment, std::string_view name, std::string_view what);

Status make_folder_of(const std::string& path);

/// Locks a file against other writers until the returned descriptor is closed. Waits up to 10 s. The lock file, path +
/// ".lock", is never removed: two programs could then hold the lock at once.
Result<UniqueFd> lock_kept_file(const std::string& path);

/// Replaces a file atomically. The caller holds the lock.
Status replace_kept_file(const std::string& path, const std::string& text);

/// Reads a file of at most `most_bytes`. An absent file is Code::unsupported. Messages say what is wrong without naming
/// the file ("is no plain file"), so that the caller can put its name in front.
Result<std::string> read_kept_file(const std::string& path, std::size_t most_bytes);

}  // namespace strait
