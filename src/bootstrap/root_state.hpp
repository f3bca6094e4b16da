#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/messages.hpp"

/// What the root knows and decides, without its sockets.
namespace strait {

inline constexpr int most_listed_ranges = 16;
/// "0-3, 7"; lists of more ranges end in "and 12 more".
std::string list_ranks(const std::vector<int>& ranks);

/// "(host node7, pid 1234)"
std::string describe_process(const JoinMessage& message);

/// The join messages of one set of ranks, checked against one another.
class Roster {
 public:
  /// Adds a rank; an error concerns all ranks.
  Status add(JoinMessage message);
  int ranks() const { return ranks_; }  ///< 0: none has joined
  bool complete() const { return ranks_ > 0 && static_cast<int>(members_.size()) == ranks_; }
  std::vector<int> missing() const;
  const JoinMessage& member(int rank) const { return members_.at(rank); }
  /// Once complete: an error that names each setting that differs, the ranks and their values.
  Status compare_settings() const;

 private:
  int ranks_ = 0;
  std::map<int, JoinMessage> members_;
};

}  // namespace strait
