#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "trace/inits.hpp"

/// What the flight recorders of a job wrote, put together: which rank is behind, and in what.
namespace strait::trace {

struct RecordedCall {
  std::uint64_t sequence = 0;
  std::string text;  ///< "all-reduce(count 8, int32, sum)"
  double posted_unix_us = 0;
  std::optional<double> finished_unix_us{};
};

/// A collective that a GPU has started, or its last group of sends and receives.
struct StartedCall {
  std::uint64_t sequence = 0;  ///< by the GPU's own count of collectives; of messages, of the one before them
  std::string text;
  std::optional<double> started_unix_us{};
  std::optional<bool> finished{};  ///< nothing: not known
};

struct RankRecord {
  std::string name;            ///< "rank 3 (host n7, pid 4711)"
  bool has_file = false;       ///< there is one of its own
  bool is_own = false;         ///< what it posted is from that; else as another rank saw it
  bool knows_finished = true;  ///< false: seen from another host
  bool left = false;
  std::uint64_t known_posted = 0;         ///< the last call of which any file tells
  double posts_until_us = 0;              ///< up to then nothing else was posted
  double starts_until_us = 0;             ///< likewise of what the GPU has started
  std::optional<std::uint32_t> awaits{};  ///< the rank that its last call has waited for a while
  std::string gpu_work{};                 ///< "finished", "running" or "unknown" of a GPU rank with a file of its own
  std::vector<RecordedCall> calls{};      ///< oldest first
  std::vector<RecordedCall> messages{};   ///< with where they go
  std::vector<StartedCall> started{};     ///< of a GPU rank, in graphs too, oldest first
  std::optional<StartedCall> started_messages{};
};

/// A communicator.
struct Flight {
  std::string communicator;
  std::string transport;
  std::vector<std::string> reasons;  ///< of the files, each once
  double first_unix_us = 0;          ///< of the first file
  double unix_us = 0;                ///< of the last one
  std::vector<RankRecord> ranks;
};

/// Of files, and of folders that hold them, whose names begin with strait-flight-. What is cut short or none of a
/// flight recorder is left out, and told to `left_out`, one message each; an error where nothing else is there. Files
/// of ranks whose communicator was not complete go to `inits`, which may be null.
Result<std::vector<Flight>> read_flights(const std::vector<std::string>& paths,
                                         std::vector<std::string>* left_out = nullptr,
                                         std::vector<RankInInit>* inits = nullptr);

/// A table of the ranks, then who is behind. `all_calls`: also every call of each rank.
std::string report(const Flight& flight, bool all_calls);

}  // namespace strait::trace
