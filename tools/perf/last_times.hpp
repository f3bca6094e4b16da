#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "perf/report.hpp"

/// What `strait perf` has last measured on this machine, kept in the user's cache folder for `strait explain`: one file
/// a machine, <fingerprint>.times.json beside its calibration.
namespace strait::perf {

/// An operation as it was, or would be, measured.
struct TimedOperation {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;
  Subject subject;
  std::size_t ranks = 0;             ///< on one host
  std::vector<std::string> bus_ids;  ///< of their GPUs, in any order; empty: host ranks
  std::string settings;              ///< settings_text() of the environment
};

struct LastTime {
  double time_us = 0;
  double bus_gbps = 0;
  std::string when;       ///< UTC
  std::string transport;  ///< "shm"
};

/// The settings that choices depend on and that differ from their defaults: "STRAIT_P2P=off"; "" where none do.
Result<std::string> settings_text(const Environment& environment);

/// The file of this machine.
Result<std::string> last_times_path(const Environment& environment);

/// Puts the times of a run into the file, in the place of earlier ones of the same operations. Not those of a run that
/// says nothing of what would be chosen here, or of plain calls (several hosts, a tuning file, wire formats or
/// registered memory on the command line, graphs, groups, single calls, odd places), nor of operations whose results
/// were wrong. A bad file is begun anew.
Status keep_times(const std::string& path, const Report& report, const Environment& environment);

/// Nothing if it was not measured. An error says what is wrong with the file, and what to do.
Result<std::optional<LastTime>> find_last_time(const std::string& path, const TimedOperation& operation);

}  // namespace strait::perf
