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
/// Formats ranks as in "0-3, 7"; after `most_ranges` ranges the text ends in "and 12 more".
std::string list_ranks(const std::vector<int>& ranks, int most_ranges = most_listed_ranges);

/// What to do where ranks did not come that are to go on with others (rejoin()).
inline constexpr const char* must_call_shrink =
    "All ranks that remain must call straitCommShrink with the same list of excluded ranks";

/// Formats a process as in "(host node7, pid 1234)".
std::string describe_process(const JoinMessage& message);
/// Formats a rank as in "rank 3 (host node7, pid 1234)".
std::string describe_rank(const JoinMessage& message);

/// A rank that has joined, but is not connected to its neighbours yet.
struct UnreadyRank {
  std::string name;
  bool is_silent = false;        ///< has not answered the root's inquiry
  std::optional<Error> account;  ///< its last answer: what it waits for, or what it lacks (Code::system_error)
};
/// Returns text that says why ranks are not connected, as far as they have told: names first those that say nothing,
/// else those that lack something, else those that wait.
std::string describe_unready(const std::vector<UnreadyRank>& ranks);

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
  /// Returns a warning for the log about the ranks that have not joined `waited` (such as "10 s") after the first one.
  /// `names`: RootOptions::names. `shortage`: Root::shortage().
  std::string describe_missing(const std::string& waited, const std::vector<std::string>& names,
                               const std::string& shortage) const;
  /// Returns the error for ranks that have not joined at `root` by the deadline. `drops` describes connections that
  /// were dropped meanwhile.
  Error missing_at_deadline(const SocketAddress& root, const std::vector<std::string>& names,
                            const std::string& shortage, const std::string& drops) const;
  const JoinMessage& member(int rank) const { return members_.at(rank); }
  /// Compares the ranks' settings, once all have joined; the error names each setting that differs, with values and
  /// ranks.
  Status compare_settings() const;

 private:
  std::vector<std::string> missing_names(const std::vector<std::string>& names) const;

  mutable std::mutex mutex_;
  int ranks_ = 0;
  std::map<int, JoinMessage> members_;
};

}  // namespace strait
