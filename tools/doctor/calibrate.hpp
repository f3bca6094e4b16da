#pragma once

#include <string>

#include "base/error.hpp"

namespace strait::doctor {

/// Returns `wanted_path`, or if it is empty the file in which communicators look for the calibration of this machine.
/// Returns an error if `wanted_path` is a directory.
Result<std::string> calibration_file(const std::string& wanted_path);

/// Measures this machine, prints the rates beside the shipped defaults, and saves them at `path` ("": where
/// communicators look for them). Returns the exit code: 0, or 2 if measuring or saving failed.
int calibrate(const std::string& path);

/// The same, but measures only if no rates of this machine have been saved yet. If several processes call this, such as
/// the ranks of a launcher, one measures and the others wait for it.
int calibrate_if_missing();

}  // namespace strait::doctor
