#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"

/// Files in the user's cache folder, which programs that run at the same time read and write.
namespace strait {

/// $XDG_CACHE_HOME/strait/<name>, else below ~/.cache; an error where there is neither. `what` is kept there, in words.
Result<std::string> cache_path(const Environment& environment, std::string_view name, std::string_view what);

Status make_folder_of(const std::string& path);

/// Held while the file is changed, so that writers take turns. Its lock file, path + ".lock", stays: removing it would
/// let two in.
Result<UniqueFd> lock_kept_file(const std::string& path);

/// Whole or not at all; while the lock is held.
Status replace_kept_file(const std::string& path, const std::string& text);

/// An absent file is an error with Code::unsupported; of others the message says what is wrong with it, without a name:
/// "is no plain file".
Result<std::string> read_kept_file(const std::string& path, std::size_t most_bytes);

}  // namespace strait
