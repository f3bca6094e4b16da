#pragma once

#include <string>

#include "base/error.hpp"

/// The folder that STRAIT_FLIGHT_RECORDER names, and the files in it.
namespace strait {

/// Returns its absolute path; "" if the variable is not set. A relative path counts from the working directory that the
/// process had when it was first asked for, so that a later chdir() does not move the folder.
std::string flight_folder();

/// Makes the folder, with its parents, if it is not there. Returns its path. An error if the variable is not set.
Result<std::string> make_flight_folder();

/// Makes the folder and checks that files can be made in it. To be called before a communicator is made, so that a
/// folder that cannot be used is known before its record is needed: it is a warning, once for each value of the
/// variable. Does nothing if the variable is not set.
void prepare_flight_folder();

/// Writes a file of the flight recorder: under another name, which is then changed, so that a file that exists is
/// whole, and of two ranks that write it at once one's remains.
Status write_flight_file(const std::string& path, int rank, const std::string& text);

}  // namespace strait
