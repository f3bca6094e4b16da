#pragma once

#include <string>

namespace strait::doctor {

/// Measures this machine, prints what was found beside the shipped defaults, and saves it at `path` ("": where
/// communicators look for it). The exit code: 0, or 2 if nothing could be saved.
int calibrate(const std::string& path);

}  // namespace strait::doctor
