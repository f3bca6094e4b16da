#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/inits.hpp"

/// Combines the files that the flight recorders of a job wrote, and determines which rank is behind, and in which call.
namespace strait::trace {

struct RecordedCall {
  std::uint64_t sequence = 0;
  std::string text;  ///< "all-reduce(count 8, int32, sum)"
  double posted_unix_us = 0;
  std::optional<double> finished_unix_us{};
};

/// A collective that a GPU has started, or its last group of sends and receives.
struct StartedCall {
  /// Number by the GPU's own count of collectives; for messages, that of the collective before them.
  std::uint64_t sequence = 0;
  std::string text;
  std::optional<double> started_unix_us{};
  std::optional<bool> finished{};  ///< empty: unknown
};

struct RankRecord {
  std::string name;            ///< "rank 3 (host n7, pid 4711)"
  bool has_file = false;       ///< whether there is a file of this rank itself
  bool is_own = false;         ///< whether its posts are from its own file; otherwise as another rank saw them
  bool knows_finished = true;  ///< false: a GPU rank, or seen only by ranks of other hosts
  bool left = false;
  std::uint64_t known_posted = 0;         ///< number of the last call that any file knows
  double file_unix_us = 0;                ///< when its own file was written
  double posts_until_us = 0;              ///< time until which it is known to have posted nothing more
  double starts_until_us = 0;             ///< time until which its GPU is known to have started nothing more
  std::optional<std::uint32_t> awaits{};  ///< the rank for which its last call has waited for a while
  /// "finished", "running" or "unknown" for a GPU rank with a file of its own; otherwise empty.
  std::string gpu_work{};
  std::vector<RecordedCall> calls{};     ///< oldest first
  std::vector<RecordedCall> messages{};  ///< sends and receives, with their peers
  std::vector<StartedCall> started{};    ///< for a GPU rank, also in graphs; oldest first
  std::optional<StartedCall> started_messages{};
};

/// Return the number of the last call that the rank has posted, or its GPU started; 0: none.
inline std::uint64_t last_posted(const RankRecord& rank) { return rank.calls.empty() ? 0 : rank.calls.back().sequence; }
inline std::uint64_t last_started(const RankRecord& rank) {
  return rank.started.empty() ? 0 : rank.started.back().sequence;
}

/// What is known of one communicator.
struct Flight {
  std::string communicator;
  std::string transport;
  std::vector<std::string> reasons;  ///< why the files were written, without duplicates
  double first_unix_us = 0;          ///< time of the first file
  double unix_us = 0;                ///< time of the last file
  std::vector<RankRecord> ranks;
};

/// Returns whether the rank has written its record after that file. A signal writes both, the record as of a moment
/// before: so the rank's call has failed since then, or the program has asked for the record alone.
bool is_outdated(const Flight& flight, const RankInInit& init);

/// Formats a table of the ranks, and then says who is behind. `all_calls`: also lists every call of each rank. `inits`:
/// those of its ranks that are in a call for which all ranks meet.
std::string report(const Flight& flight, bool all_calls, const std::vector<RankInInit>& inits = {});

}  // namespace strait::trace
