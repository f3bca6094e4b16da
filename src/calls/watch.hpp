#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "transport/control.hpp"
#include "transport/transport.hpp"

namespace strait {

/// What a rank knows of another for its messages: "rank 3 (host n7, pid 4711)".
using RankName = std::string;

/// How waits end. Waiting costs nothing but the waiting thread: it spins, then yields, then sleeps, and on the way
/// looks at the abort flag, at whether the ranks it waits for are alive, at whether they made the same call, and at the
/// clock. The first error of the communicator is kept where all its ranks on the host see it, and is sticky.
class Watch {
 public:
  struct Peers {
    std::uint32_t rank = 0;
    std::vector<RankName> names;  ///< by rank
    /// Whether the process of a rank is seen to have died. Null: all ranks are threads of this process.
    std::function<bool(std::uint32_t rank)> has_died;
    std::function<std::string(std::uint32_t rank)> cause_of_death;  ///< what is known of one that has: "whose ..."
    bool oversubscribed = false;  ///< more ranks on the host than cores: yield at once
    std::int64_t timeout_ms = 0;  ///< of an operation; 0: none
    /// Told once, when this rank first sees that the communicator has failed. From any thread.
    std::function<void(const Error&)> on_failure{};
  };
  /// `control` and `controls` (by rank) outlive the watch.
  Watch(Control& control, std::vector<RankControl*> controls, const Transport& transport, Peers peers);

  bool has_failed() const { return control_.abort.load(std::memory_order_acquire) != 0; }
  /// The sticky error; success if there is none. From any thread.
  Status sticky() const;
  /// Makes `error` the sticky error of all ranks, unless there is one already; returns the one that holds.
  Error raise(Error error);

  /// Raises an error if a rank is seen to have made another call than `own` as its collective number `sequence`.
  /// Numbers of ranks that have captured calls say nothing.
  Status compare_calls(std::uint64_t sequence, const CallSignature& own);
  /// Likewise, of a rank that has waited for others in a call of the set-up ("called a split of ...") and has yet to
  /// make collective `next`. Who has come to that all the same would wait in it for ever.
  Status compare_set_up(const std::string& own, std::uint64_t next);
  /// Raises that this rank and `rank` made calls that differ, at least one of the set-up.
  Error raise_difference(const std::string& own, std::uint32_t rank, const std::string& other);
  /// Looks, for an attendant that waits for nothing itself, whether a peer has died, and whether ranks made different
  /// calls of late; raises the error. May run beside this rank's own thread. `is_idle`: whether this rank's GPU has
  /// done all: then it misses nobody whose process has ended in good order.
  Status examine_peers(const std::function<bool()>& is_idle);
  RankControl& own_control() { return *controls_[peers_.rank]; }
  const RankControl& control_of(std::uint32_t rank) const { return *controls_[rank]; }
  std::uint32_t rank() const { return peers_.rank; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(controls_.size()); }
  /// The error of two calls that do not fit.
  Error mismatch(const CallSignature& own, std::uint32_t rank, const CallSignature& other) const;
  /// `own` and `other`: what this rank and that one did. `rule`: what every rank must make alike.
  Error made_differently(const std::string& own, std::uint32_t rank, const std::string& other,
                         const std::string& rule) const;
  bool has_deadline() const { return peers_.timeout_ms > 0; }
  const RankName& name_of(std::uint32_t rank) const { return peers_.names[rank]; }
  /// What errors say of a rank that has and is still needed, behind its name.
  static constexpr const char* has_left_text =
      ", which has destroyed its communicator. Let it make the same calls as the others before it does";
  /// Whether a rank has destroyed its communicator.
  bool has_left(std::uint32_t rank) const { return controls_[rank]->left.load(std::memory_order_acquire) != 0; }
  /// Whether the process of a rank, which has not left, is seen to have died.
  bool has_died(std::uint32_t rank) const {
    return rank != peers_.rank && peers_.has_died && peers_.has_died(rank) && !has_left(rank);
  }
  /// Declares that this rank will take no further part.
  void leave() { controls_[peers_.rank]->left.store(1, std::memory_order_release); }
  /// That its process ends, when it has done all that it was to do.
  void announce_exit() { controls_[peers_.rank]->exiting.store(1, std::memory_order_release); }

  /// Waits of this length are told of.
  static constexpr std::chrono::milliseconds slow_wait{10'000};
  /// Tells of one, of this rank's GPU for another rank: the user, or where that rank has left all ranks, as an error.
  /// `who`: "a kernel on rank 1 (...)".
  void tell_of_slow_wait(const std::string& who, std::chrono::milliseconds duration, std::uint32_t rank);
  /// Raises that such a wait has passed its deadline.
  void raise_timeout(const std::string& who, std::int64_t timeout_ms, std::uint32_t rank);

  /// For the flight recorder: that this rank has waited a while for another one, or no longer does.
  void note_awaited(std::uint32_t rank) { controls_[peers_.rank]->awaited.store(rank + 1, std::memory_order_relaxed); }
  void forget_awaited() { controls_[peers_.rank]->awaited.store(0, std::memory_order_relaxed); }

  /// Between these this rank may read and write buffers that other ranks of its process have given the operation of
  /// that number, one that grows from each to the next. False: it has failed on one of them, and no step may be made.
  /// (Who has failed in a later one needs nothing of this one any more, so that it may still end well.)
  bool begin_step(std::uint64_t operation);
  void end_step() { own_control().is_in_step.store(0, std::memory_order_release); }
  /// After an operation that has failed: until no other rank is in a step of it, which none begins any more.
  void await_steps(std::uint64_t operation);

  /// One operation's wait, as far as this watch must know it.
  struct Waiting {
    std::uint64_t sequence = 0;  ///< 0: not a collective
    CallSignature signature;
    std::chrono::steady_clock::time_point operation_began{};  ///< read where operations have a deadline
    std::function<std::vector<std::uint32_t>()> awaited_ranks;
  };
  /// The state of one wait; starts anew whenever the operation advances.
  struct Backoff {
    std::uint32_t rounds = 0;
    std::chrono::steady_clock::time_point began{};
    std::chrono::steady_clock::time_point examined{};
    bool compared = false;
    bool warned = false;
    std::vector<std::uint32_t> gone;  ///< awaited ranks last seen dead or left
  };
  /// Waits a little. An error: the operation cannot complete (already raised).
  Status pause(Backoff& backoff, const Waiting& waiting);

 private:
  void tell_once(const Error& error) const;
  Status examine(Backoff& backoff, const Waiting& waiting);
  Status check_lives(Backoff& backoff, const Waiting& waiting);
  void add_missing(std::uint64_t sequence, std::vector<std::uint32_t>& awaited) const;
  std::string awaited_names(const Waiting& waiting) const;
  void warn_of_wait(const std::string& who, std::chrono::milliseconds duration, const std::string& whom) const;

  Control& control_;
  std::vector<RankControl*> controls_;
  const Transport& transport_;
  Peers peers_;
  mutable std::atomic<bool> told_{false};
  bool misses(std::uint32_t rank, const std::function<bool()>& is_idle);
  std::optional<std::chrono::steady_clock::time_point> busy_since_;  ///< while a rank's process has ended
};

/// Behind the rule that two such calls break; "" where it is not that.
std::string advice_on_groups(const CallSignature& a, const CallSignature& b);

}  // namespace strait
