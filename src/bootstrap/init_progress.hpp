#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/address.hpp"

namespace strait {

/// How far a rank has got while its communicator is made. The thread that makes it writes this, and another one reads
/// it, to report what a rank that hangs waits for.
class InitProgress {
 public:
  using Clock = std::chrono::system_clock;
  struct State {
    int rank = -1;  ///< as the user knows it; -1: not known yet
    int ranks = 0;  ///< 0: not known yet
    /// The numbers by which the user knows the ranks, if they had others before (JoinOptions::known_as); or empty.
    std::vector<int> known_as{};
    std::optional<SocketAddress> root{};  ///< where the ranks join; nothing: not known yet
    std::string awaits{};                 ///< "rank 0, which gives out the unique id"; "": for nobody
    Clock::time_point awaits_since = Clock::now();
  };

  void set_place(int rank, int ranks, std::vector<int> known_as = {}) {
    const std::scoped_lock lock(mutex_);
    state_.rank = known_as.empty() ? rank : known_as[static_cast<std::size_t>(rank)];
    state_.ranks = ranks;
    state_.known_as = std::move(known_as);
  }
  void set_root(const SocketAddress& root) {
    const std::scoped_lock lock(mutex_);
    state_.root = root;
  }
  /// Notes what the rank waits for from now on.
  void await(std::string what) {
    const std::scoped_lock lock(mutex_);
    state_.awaits = std::move(what);
    state_.awaits_since = Clock::now();
  }
  State state() const {
    const std::scoped_lock lock(mutex_);
    return state_;
  }

 private:
  mutable std::mutex mutex_;
  State state_;
};

/// Notes what the rank waits for from now on. `progress` may be null.
inline void note_awaited(InitProgress* progress, std::string what) {
  if (progress != nullptr) progress->await(std::move(what));
}

}  // namespace strait
