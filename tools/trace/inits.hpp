#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

/// What ranks wrote that were still making a communicator, or in another call for which all ranks meet, when they got
/// SIGUSR1.
namespace strait::trace {

struct RankInInit {
  std::string call;  ///< "straitCommInitEnv"
  int rank = -1;     ///< -1: the rank did not know it yet
  int ranks = 0;     ///< 0: likewise
  /// In a shrink the numbers of the ranks that take part, which are those of the earlier communicator; otherwise empty.
  std::vector<int> known_as{};
  std::string process;  ///< "host n7, pid 4711"
  std::string root;     ///< where the ranks join; "": the rank did not know it yet
  std::string awaits;   ///< what it waited for
  /// Whether it waited for others to make the call, as all ranks of the communicator are to; nothing: that is unknown
  /// (earlier versions wrote none).
  std::optional<bool> awaits_calls = false;
  std::string communicator{};  ///< whose ranks all make the call; "": there was none yet
  int rank_there = -1;         ///< its rank in that communicator
  double began_unix_us = 0;
  double awaits_since_unix_us = 0;
  double unix_us = 0;          ///< when the file was written
  std::vector<int> missing{};  ///< the ranks that had not joined, if this rank's process knew
};

/// Returns whether the rank certainly waited for others to make the call: these had not made it.
inline bool waits_for_calls(const RankInInit& init) { return init.awaits_calls.value_or(false); }

/// Whether the file is of a rank in its init, and not of a communicator.
bool is_of_init(const nlohmann::json& json);
/// Reads such a file; throws an exception of the JSON library if it is not well formed.
RankInInit read_init(const nlohmann::json& json);

/// Returns a table of the ranks, and which ranks are missing, for each set of ranks that join at one address. Ranks may
/// have joined there one time after another: `all`: also tells of those before the last time.
std::string report_inits(const std::vector<RankInInit>& inits, bool all);

}  // namespace strait::trace
