#pragma once

#include <string>

#include "base/error.hpp"

namespace strait::doctor {

/// `wanted_path`, or where communicators look for the calibration of this machine.
Result<std::string> calibration_file(const std::string& wanted_path);

/// Measures this machine, prints what was found beside the shipped defaults, and saves it at `path` ("": where
/// communicators look for it). The exit code: 0, or 2 if nothing could be saved.
int calibrate(const std::string& path);

/// Likewise, unless rates of this machine are kept already. Of several processes, such as the ranks of a launcher, one
/// measures and the others wait for it.
int calibrate_if_missing();

}  // namespace strait::doctor
