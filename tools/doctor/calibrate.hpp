#pragma once

#include <string>

namespace strait::doctor {

/// Measures this machine, prints what was found beside the shipped defaults, and saves it at `path` ("": where
/// communicators look for it). The exit code: 0, or 2 if nothing could be saved.
int calibrate(const std::string& path);

/// Likewise, unless rates of this machine are kept already. Of several processes, such as the ranks of a launcher, one
/// measures and the others wait for it.
int calibrate_if_missing();

}  // namespace strait::doctor
