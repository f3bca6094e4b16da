#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/messages.hpp"

/// What the root knows and decides; without its sockets.
namespace strait {

inline constexpr int most_listed_ranges = 16;
/// Formats ranks as in "0-3, 7"; after most_listed_ranges ranges the text ends in "and 12 more".
std::string list_ranks(const std::vector<int>& ranks);

/// Formats a process as in "(host node7, pid 1234)".
std::string describe_process(const JoinMessage& message);

/// The join messages of one set of ranks, checked against one another. One thread adds them; other threads may ask for
/// joined() and missing().
class Roster {
 public:
  /// Adds a rank; an error concerns all ranks.
  Status add(JoinMessage message);
  int ranks() const { return ranks_; }  ///< 0 if none has joined
  bool complete() const { return ranks_ > 0 && static_cast<int>(members_.size()) == ranks_; }
  int joined() const;
  std::vector<int> missing() const;
  const JoinMessage& member(int rank) const { return members_.at(rank); }
  /// Compares the ranks' settings, once all have joined; the error names each setting that differs, with values and
  /// ranks.
  Status compare_settings() const;

 private:
  mutable std::mutex mutex_;
  int ranks_ = 0;
  std::map<int, JoinMessage> members_;
};

}  // namespace strait
