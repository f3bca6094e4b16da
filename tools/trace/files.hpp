#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "trace/flight.hpp"
#include "trace/inits.hpp"

/// Reads the files that flight recorders wrote. Several runs of a job may have used one folder.
namespace strait::trace {

/// What one run has written, or several at the same time.
struct Run {
  std::vector<Flight> flights;    ///< by the time of their last file
  std::vector<RankInInit> inits;  ///< ranks whose communicator was not complete yet
  double unix_us = 0;             ///< when its last file was written
};

struct Recorded {
  bool all_runs = false;
  std::vector<Run> runs;          ///< the oldest first; only the newest that can be used if not `all_runs`
  std::size_t earlier_files = 0;  ///< of those before it
  double earlier_unix_us = 0;     ///< when the last of them was written
  /// Files that are cut short, or not from a flight recorder, and what is wrong with them.
  std::vector<std::string> left_out;
};

/// Reads files and, of a folder, its files strait-flight-*.json. `all_runs`: not only those of the newest run in which
/// there is one that can be used. Returns an error if there is none that can be used.
Result<Recorded> read_files(const std::vector<std::string>& paths, bool all_runs = false);

/// Formats what is known, and who is behind. `all_calls`: also lists every call of each rank.
std::string report(const Recorded& recorded, bool all_calls);

}  // namespace strait::trace
