#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/deadline.hpp"
#include "base/error.hpp"

/// The folder that STRAIT_FLIGHT_RECORDER names, and the files in it.
namespace strait {

/// Returns its absolute path; "" if the variable is not set. A relative path counts from the working directory that the
/// process had when it was first asked for, so that a later chdir() does not move the folder.
std::string flight_folder();

/// Makes the folder, with its parents, if it is not there. Returns its path. An error if the variable is not set.
Result<std::string> make_flight_folder();

/// The longest wait for the folder: its file system may be one of a server that is gone, and never answer.
inline constexpr std::chrono::milliseconds folder_patience{5000};

/// Runs `work`, which uses the folder, on a thread of its own. Returns its result, or, if it takes longer than
/// `patience`, an error (Code::timeout) that tells the user what to do. The work goes on then, so it must own what it
/// uses, and the log says when it is done after all. Until then no other work with that folder is begun: it would wait
/// as well.
Status do_in_folder(const std::string& folder, std::chrono::milliseconds patience, std::function<Status()> work);

/// Makes this folder if it is not there, and a file in it, which goes again.
Status check_flight_folder(const std::string& folder);

/// Checks the folder. To be called before a communicator is made, so that a folder that cannot be used is known before
/// its record is needed: it is a warning, once for each value of the variable. Waits for an answer for at most a tenth
/// of the time until `deadline` (or 0.1 s, if half of that time is not less), so that the other ranks can still be met.
/// Does nothing if the variable is not set.
void prepare_flight_folder(const Deadline& deadline, Status (*check)(const std::string& folder) = check_flight_folder);

/// Writes a file of the flight recorder: under another name, which is then changed, so that a file that exists is
/// whole, and of two ranks that write it at once one's remains.
Status write_flight_file(const std::string& path, int rank, const std::string& text);

}  // namespace strait
