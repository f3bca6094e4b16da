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

/// A rank as messages to the user name it: "rank 3 (host n7, pid 4711)".
using RankName = std::string;

/// Decides how the waits of a rank end. A waiting thread spins, then yields, then sleeps, and meanwhile checks the
/// abort flag, whether the ranks that it waits for are alive, whether they made the same call, and the clock. Waiting
/// costs nothing else. The first error of the communicator is sticky, and kept where all its ranks on the host see it.
class Watch {
 public:
  struct Peers {
    std::uint32_t rank = 0;
    std::vector<RankName> names;  ///< by rank
    bool oversubscribed = false;  ///< more ranks on the host than cores: yield at once
    std::int64_t timeout_ms = 0;  ///< deadline of an operation; 0: none
    /// Called once, when this rank first sees that the communicator has failed. From any thread.
    std::function<void(const Error&)> on_failure{};
  };
  /// `transport` must outlive the watch.
  Watch(Transport& transport, Peers peers);

  bool has_failed() const { return control_.abort.load(std::memory_order_acquire) != 0; }
  /// Returns the sticky error; success if there is none. From any thread.
  Status sticky() const;
  /// Makes `error` the sticky error of all ranks, unless there is one already; returns the one that holds.
  Error raise(Error error);

  /// Raises an error if another rank has posted another call than `own` as its collective number `sequence`. Ranks that
  /// have captured calls are left out, because their numbers mean nothing.
  Status compare_calls(std::uint64_t sequence, const CallSignature& own);
  /// To be called by a rank that has waited for others in a set-up call and has yet to make collective `next`: raises
  /// an error if another rank has posted that collective, in which it would wait forever. `own`: what this rank did, as
  /// "called a split of ...".
  Status compare_set_up(const std::string& own, std::uint64_t next);
  /// Raises the error that this rank and `rank` made different calls, at least one of them a set-up call.
  Error raise_difference(const std::string& own, std::uint32_t rank, const std::string& other);
  /// For an attendant thread, which does not wait itself: checks whether a peer has died, and whether ranks have posted
  /// different calls lately; raises the error. May run at the same time as this rank's own thread.
  Status examine_peers();
  RankControl& own_control() { return *controls_[peers_.rank]; }
  const RankControl& control_of(std::uint32_t rank) const { return *controls_[rank]; }
  std::uint32_t rank() const { return peers_.rank; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(controls_.size()); }
  /// Returns the error that two calls do not match.
  Error mismatch(const CallSignature& own, std::uint32_t rank, const CallSignature& other) const;
  /// Returns the error that a receive of this rank does not fit the send of `sender`.
  Error mismatch_of_messages(const CallSignature& received, std::uint32_t sender, const CallSignature& sent) const;
  /// Returns the error that two ranks made different calls. `own` and `other`: what this rank and that one did. `rule`:
  /// what every rank must do alike.
  Error made_differently(const std::string& own, std::uint32_t rank, const std::string& other,
                         const std::string& rule) const;
  bool has_deadline() const { return peers_.timeout_ms > 0; }
  const RankName& name_of(std::uint32_t rank) const { return peers_.names[rank]; }
  /// What errors say, after its name, of a rank that has left and is still needed.
  static constexpr const char* has_left_text =
      ", which has destroyed its communicator. Let it make the same calls as the others before it does";
  /// Returns whether a rank has destroyed its communicator.
  bool has_left(std::uint32_t rank) const { return controls_[rank]->left.load(std::memory_order_acquire) != 0; }
  /// Returns whether the process of a rank that has not left is known to have died.
  bool has_died(std::uint32_t rank) const {
    return rank != peers_.rank && transport_.has_died(rank) && !has_left(rank);
  }
  /// Returns whether a rank that has not left is known to have ended its process in good order (announce_exit()).
  bool has_exited(std::uint32_t rank) const {
    return controls_[rank]->exiting.load(std::memory_order_acquire) != 0 && has_died(rank);
  }
  /// Returns whether a rank makes no more calls, without having failed. What it did before still counts.
  bool has_gone(std::uint32_t rank) const { return has_left(rank) || has_exited(rank); }
  /// Raises the error that a rank that has gone is still needed. `who`: what waits for it, as "a kernel on rank 1
  /// (...)".
  Error raise_gone(const std::string& who, std::uint32_t rank);
  /// Returns what is known of the death of a rank, as "whose ...".
  std::string cause_of_death(std::uint32_t rank) const { return transport_.cause_of_death(rank); }
  /// Declares that this rank will take no further part.
  void leave() { controls_[peers_.rank]->left.store(1, std::memory_order_release); }
  /// Declares that this rank's process ends, and that the rank had nothing left to do.
  void announce_exit() { controls_[peers_.rank]->exiting.store(1, std::memory_order_release); }

  /// Waits of this length are reported.
  static constexpr std::chrono::milliseconds slow_wait{10'000};
  /// Warns of such a wait of this rank's GPU for `rank`. `who`: as in raise_gone().
  void tell_of_slow_wait(const std::string& who, std::chrono::milliseconds duration, std::uint32_t rank);
  /// Raises the error that such a wait has passed its deadline.
  void raise_timeout(const std::string& who, std::int64_t timeout_ms, std::uint32_t rank);

  /// Note in the control words that this rank has waited a while for another one, or no longer does. Flight recorders
  /// show it, and StartedCalls compares it.
  void note_awaited(std::uint32_t rank) { controls_[peers_.rank]->awaited.store(rank + 1, std::memory_order_relaxed); }
  void forget_awaited() { controls_[peers_.rank]->awaited.store(0, std::memory_order_relaxed); }

  /// Between begin_step() and end_step() this rank may read and write buffers that other ranks of its process have
  /// given to operation `operation`, a number that grows from each operation to the next. begin_step() returns false if
  /// one of these ranks has failed in this operation or an earlier one; then no step may be made. (A rank that has
  /// failed in a later operation needs nothing of this one any more, which may still end well.)
  bool begin_step(std::uint64_t operation);
  void end_step() { own_control().is_in_step.store(0, std::memory_order_release); }
  /// After an operation has failed: waits until no other rank is in a step of it. No rank begins a further one.
  void await_steps(std::uint64_t operation);

  /// What a watch must know of an operation that waits.
  struct Waiting {
    std::uint64_t sequence = 0;  ///< 0: not a collective
    CallSignature signature;
    std::chrono::steady_clock::time_point operation_began{};  ///< read if operations have a deadline
    std::function<std::vector<std::uint32_t>()> awaited_ranks;
  };
  /// The state of one wait; to be reset whenever the operation advances.
  struct Backoff {
    std::uint32_t rounds = 0;
    std::chrono::steady_clock::time_point began{};
    std::chrono::steady_clock::time_point examined{};
    std::chrono::steady_clock::time_point compared{};
    bool warned = false;
    std::vector<std::uint32_t> gone;  ///< awaited ranks that were dead or had left at the last check
  };
  /// Waits a little. Returns an error, which it has raised, if the operation cannot complete.
  Status pause(Backoff& backoff, const Waiting& waiting);

 private:
  void tell_once(const Error& error) const;
  Status examine(Backoff& backoff, const Waiting& waiting);
  bool is_overdue(std::chrono::steady_clock::time_point operation_began, std::chrono::steady_clock::time_point now);
  Status check_lives(Backoff& backoff, const Waiting& waiting);
  Status compare_if_due(Backoff& backoff, const Waiting& waiting);
  /// Compares the last collective that this rank has posted, which may have completed without hearing from all ranks.
  Status compare_last_call();
  void add_missing(std::uint64_t sequence, std::vector<std::uint32_t>& awaited) const;
  /// Returns the other ranks that have not made the collective.
  std::vector<std::uint32_t> late_ranks(std::uint64_t sequence) const;
  /// Returns the ranks at the ends of the chains of waits that begin with the ranks this one waits for.
  std::vector<std::uint32_t> ends_of_waits(const Waiting& waiting) const;
  /// Follows, from `first`, whom each rank waits for in the collective (ranks note that where others see it on one host
  /// only). Returns the rank that waits for nobody, or all ranks of a circle.
  std::vector<std::uint32_t> end_of_waits(std::uint32_t first, std::uint64_t sequence) const;
  /// Names the ranks that keep an operation from going on: those that have not made the call; if all have, those at the
  /// ends of waits.
  std::string blamed_names(const Waiting& waiting) const;
  void warn_of_wait(const std::string& who, std::chrono::milliseconds duration, const std::string& whom) const;

  Control& control_;
  std::vector<RankControl*> controls_;
  const Transport& transport_;
  Peers peers_;
  mutable std::atomic<bool> told_{false};
  /// The beginning of the last operation that this rank saw past its deadline, and when it first did.
  std::chrono::steady_clock::time_point overdue_{}, overdue_since_{};
};

/// Returns what to add to the rule that two calls have broken if they differ only in their groups; otherwise "".
std::string advice_on_groups(const CallSignature& a, const CallSignature& b);

}  // namespace strait
