#pragma once

#include <atomic>
#include <list>
#include <optional>
#include <set>
#include <string>

#include "bootstrap/doorman.hpp"
#include "bootstrap/hand_out.hpp"
#include "bootstrap/root.hpp"
#include "bootstrap/root_state.hpp"

namespace strait {

/// Introduces the ranks of one unique id to one another. start_root() runs it on a thread of its own.
class Root {
 public:
  Root(UniqueId id, Socket listener, RootOptions options)
      : id_(id),
        deadline_(options.deadline),
        hand_out_(std::move(options.hand_out)),
        rank_set_(std::move(options.rank_set)),
        names_(std::move(options.names)),
        doorman_(std::move(listener), id.key, Purpose::join, options.limits),
        expected_(options.ranks),
        remind_after_ms_(options.remind_after_ms) {}

  void run(const std::atomic<bool>& stop);
  std::int64_t strangers_dropped() const { return strangers_dropped_.load(std::memory_order_relaxed); }
  const Roster& roster() const { return roster_; }
  bool failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  struct Member {
    Connection connection;
    int rank = -1;  ///< -1: not known yet
    bool ready = false;
    Deadline answer_due = Deadline::never();  ///< of an inquiry without an answer so far
    std::optional<Error> account{};           ///< the last answer
    bool closing = false;                     ///< to be removed once everything queued for it is sent
  };

  void serve_all();
  void tell_shortage(const Error& error);
  void ask_all_to_retry();
  void give_up();
  void poll_once();
  void serve(Member& member);
  void take(Member& member, const Frame& frame);
  void take_join(Member& member, const Frame& frame);
  bool ranks_try_again() const;
  static void ask_to_retry(Member& member, const std::string& why);
  Status is_of_this_set(const JoinMessage& message) const;
  void answer_other_set(Member& member, const JoinMessage& message, const Error& differs);
  void introduce();
  void fail_all(const Error& error);
  void tell_failure(Member& member);
  void inquire();
  std::vector<UnreadyRank> unready() const;
  void remind();
  std::string shortage() const;
  void check_deadline();
  bool finished() const;

  UniqueId id_;
  Deadline deadline_;
  HandOut hand_out_;
  std::optional<Setting> rank_set_;
  std::vector<std::string> names_;
  Doorman doorman_;
  std::list<Member> members_;
  Roster roster_;
  std::optional<Error> failure_;
  bool introduced_ = false;
  std::int64_t inquiry_ms_ = 0;  ///< interval of inquiries; an answer that takes longer counts as none
  Deadline next_inquiry_ = Deadline::never();
  Deadline linger_ = Deadline::never();  ///< after a failure: until when ranks that come late are told of it
  int expected_;                         ///< the largest number of ranks, of what is known and what ranks have said
  std::set<int>
      ranks_told_of_failure_;  ///< have been told; if ranks_try_again(), they come again only for the next root
  const std::int64_t remind_after_ms_;
  std::optional<WaitReminder> reminder_;  ///< since the first rank has joined
  std::atomic<std::int64_t> strangers_dropped_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace strait
