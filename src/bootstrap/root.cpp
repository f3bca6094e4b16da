#include "bootstrap/root.hpp"

#include <unistd.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "base/log.hpp"
#include "base/shortage.hpp"
#include "bootstrap/root_state.hpp"

namespace strait {
namespace {

/// How long before its deadline a rank is told that others are missing, while it still listens for that.
std::int64_t margin_ms(std::int64_t remaining_ms) { return std::clamp<std::int64_t>(remaining_ms / 10, 5, 500); }

class Root {
 public:
  Root(UniqueId id, Socket listener, RootOptions options)
      : id_(id),
        deadline_(options.deadline),
        hand_out_(std::move(options.hand_out)),
        rank_set_(std::move(options.rank_set)),
        doorman_(std::move(listener), id.key, Purpose::join, options.limits),
        expected_(options.ranks) {}

  void run(const std::atomic<bool>& stop);
  std::int64_t strangers_dropped() const { return strangers_dropped_.load(std::memory_order_relaxed); }
  const Roster& roster() const { return roster_; }
  bool failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  struct Member {
    Connection connection;
    int rank = -1;  ///< -1: not known yet
    bool ready = false;
    bool closing = false;  ///< to be removed once everything queued for it is sent
  };

  void serve_all();
  void tell_shortage(const Error& error);
  void ask_all_to_retry();
  void give_up();
  void poll_once();
  void serve(Member& member);
  void take(Member& member, const Frame& frame);
  void take_join(Member& member, const Frame& frame);
  static void ask_to_retry(Member& member, const std::string& why);
  Status is_of_this_set(const JoinMessage& message) const;
  void answer_other_set(Member& member, const JoinMessage& message, const Error& differs);
  void introduce();
  void fail_all(const Error& error);
  void tell_failure(Member& member);
  void check_deadline();
  bool finished() const;

  UniqueId id_;
  Deadline deadline_;
  HandOut hand_out_;
  std::optional<Setting> rank_set_;
  Doorman doorman_;
  std::list<Member> members_;
  Roster roster_;
  std::optional<Error> failure_;
  bool introduced_ = false;
  Deadline linger_ = Deadline::never();  ///< after a failure: until when ranks that come late are told of it
  int expected_;                         ///< the largest number of ranks, of what is known and what ranks have said
  std::set<int> ranks_told_of_failure_;  ///< have been told; with `rank_set_`, they come again only for the next root
  std::atomic<std::int64_t> strangers_dropped_{0};
  std::atomic<bool> failed_{false};
};

void Root::run(const std::atomic<bool>& stop) {
  Status served;
  while (served && !stop.load(std::memory_order_relaxed) && !finished()) {
    served = catch_shortage([this] { serve_all(); });
    if (!served && !failure_) served = catch_shortage([&] { tell_shortage(served.error()); });
  }
  if (served && !introduced_ && (rank_set_ || failure_)) served = catch_shortage([this] { ask_all_to_retry(); });
  if (!served) give_up();  // short of memory again, or while telling the ranks
}

void Root::serve_all() {
  poll_once();
  if (hand_out_) hand_out_.serve(id_);
  for (Connection& connection : doorman_.admit()) members_.push_back({std::move(connection)});
  for (Member& member : members_) serve(member);
  std::erase_if(members_, [](const Member& member) {
    return member.connection.ended() || (member.closing && !member.connection.wants_write());
  });
  if (roster_.complete() && !introduced_ && !failure_) introduce();
  check_deadline();
  strangers_dropped_.store(doorman_.dropped(), std::memory_order_relaxed);
}

/// Tells ranks that have joined of the failure, and those that come later, as far as memory permits. The others may
/// have lost data: they are dropped, and connect again.
void Root::tell_shortage(const Error& error) {
  doorman_.drop_all();
  fail_all(error);
  std::erase_if(members_, [](const Member& member) { return member.rank < 0; });
}

/// Tells all ranks to come again, because the next root is about to listen here.
void Root::ask_all_to_retry() {
  for (Member& member : members_)
    if (!member.closing) ask_to_retry(member, failure_ ? failure_->message : "another set of ranks was to join there");
}

/// Closes everything without sending messages: all ranks notice that the root is gone.
void Root::give_up() {
  failed_.store(true, std::memory_order_release);
  doorman_.close();
  hand_out_.close();
  members_.clear();
}

void Root::poll_once() {
  std::vector<pollfd> fds;
  doorman_.watch(fds);
  if (hand_out_) fds.push_back({hand_out_.fd(), POLLIN, 0});
  for (const Member& member : members_) fds.push_back({member.connection.fd(), member.connection.poll_events(), 0});
  poll_slice(fds, failure_ ? linger_ : deadline_);
}

void Root::serve(Member& member) {
  member.connection.flush();
  member.connection.fill();
  while (!member.closing) {
    auto frame = member.connection.next();
    if (!frame) {
      fail_all({Code::remote_error, "rank " + std::to_string(member.rank) + " sent " + frame.error().message});
      return;
    }
    if (!*frame) break;
    take(member, **frame);
  }
  if (member.connection.ended() && member.rank >= 0 && !member.ready && !member.closing && !failure_)
    fail_all({Code::remote_error,
              "rank " + std::to_string(member.rank) + " " + describe_process(roster_.member(member.rank)) +
                  " went away while the ranks were joining: it died, or gave up (see its own error)"});
}

void Root::take(Member& member, const Frame& frame) {
  if (frame.type == FrameType::join && member.rank < 0) return take_join(member, frame);
  if (frame.type == FrameType::ready && introduced_) {
    member.ready = true;
    return;
  }
  auto error = frame.type == FrameType::error
                   ? decode_error(frame.payload)
                   : fail(Code::remote_error, "a peer sent an unexpected frame while joining");
  member.closing = true;
  fail_all(error ? *error : error.error());
}

void Root::take_join(Member& member, const Frame& frame) {
  auto message = decode_join(frame.payload);
  if (!message) {
    failure_ ? tell_failure(member) : fail_all(message.error());
    return;
  }
  if (const Status same = is_of_this_set(*message); !same) return answer_other_set(member, *message, same.error());
  expected_ = std::max(expected_, message->ranks);
  if (failure_ && rank_set_ && ranks_told_of_failure_.contains(message->rank))
    return ask_to_retry(member, failure_->message);
  if (failure_) {
    member.rank = message->rank;
    tell_failure(member);
    return;
  }
  int rank = message->rank;
  auto remaining_ms = message->remaining_ms;
  if (auto added = roster_.add(std::move(*message)); !added) {
    fail_all(added.error());
    return;
  }
  member.rank = rank;
  if (remaining_ms < Deadline::never().remaining_ms())
    deadline_ = earlier(deadline_, Deadline::after_ms(remaining_ms - margin_ms(remaining_ms)));
}

Status Root::is_of_this_set(const JoinMessage& message) const {
  if (!rank_set_) return {};
  const auto theirs = std::find_if(message.settings.begin(), message.settings.end(),
                                   [&](const Setting& setting) { return setting.name == rank_set_->name; });
  if (theirs != message.settings.end() && theirs->value == rank_set_->value) return {};
  const std::string value = theirs == message.settings.end() ? "nothing" : "\"" + theirs->value + "\"";
  return fail(Code::mismatch, rank_set_->name + " is " + value + " on rank " + std::to_string(message.rank) + " " +
                                  describe_process(message) + ", and \"" + rank_set_->value +
                                  "\" on the one that it joins. Give the same on all ranks");
}

/// Answers a rank of another set. If its set is later (smaller), the rank is to come again, and this root ends; if it
/// is earlier, only the rank is refused; if both have the same size, the ranks disagree, and all fail.
void Root::answer_other_set(Member& member, const JoinMessage& message, const Error& differs) {
  if (message.ranks < expected_) {
    ask_to_retry(member, differs.message);
  } else {
    member.connection.send(FrameType::error, encode(differs));
    member.closing = true;
  }
  if (message.ranks <= expected_) fail_all(differs);
}

/// Tells a rank to come again, for the next root.
void Root::ask_to_retry(Member& member, const std::string& why) {
  member.connection.send(FrameType::error, encode(Error{Code::in_progress, why}));
  member.closing = true;
}

void Root::introduce() {
  if (auto equal = roster_.compare_settings(); !equal) {
    fail_all(equal.error());
    return;
  }
  introduced_ = true;  // from here on the set is complete: a rank that connects now wants the next root
  doorman_.close();
  hand_out_.close();
  WelcomeMessage welcome;
  random_bytes(welcome.session);
  for (Member& member : members_) {
    if (member.rank < 0) {
      member.closing = true;
      continue;
    }
    int parent = member.rank == 0 ? 0 : (member.rank - 1) / 2;
    welcome.parent = roster_.member(parent).listener;
    member.connection.send(FrameType::welcome, encode(welcome));
  }
}

void Root::fail_all(const Error& error) {
  if (failure_) return;
  linger_ = Deadline::after_ms(std::clamp<std::int64_t>(deadline_.remaining_ms(), 1000, 60'000));
  failure_ = error;
  failed_.store(true, std::memory_order_release);  // before any rank is told, because that rank may start again at once
  log_info(-1, "start-up failed: " + error.message);
  for (Member& member : members_)  // those without a rank may belong to another set, as their join will show
    if (!rank_set_ || member.rank >= 0) tell_failure(member);
}

void Root::tell_failure(Member& member) {
  if (!member.closing) member.connection.send(FrameType::error, encode(*failure_));
  member.closing = true;
  if (member.rank >= 0) ranks_told_of_failure_.insert(member.rank);
}

void Root::check_deadline() {
  if (failure_ || !deadline_.expired()) return;
  std::string strangers;
  if (doorman_.dropped() > 0)
    strangers = ". " + std::to_string(doorman_.dropped()) + " other connections were dropped, the last one being " +
                doorman_.last_drop();
  if (!doorman_.accept_error().empty())
    strangers += ". The process that introduces them ran short: " + doorman_.accept_error();
  if (introduced_) {
    std::vector<int> unready;
    for (const Member& member : members_)
      if (!member.ready) unready.push_back(member.rank);
    std::sort(unready.begin(), unready.end());
    fail_all({Code::timeout,
              "all ranks joined, but by the deadline these did not reach their neighbours: " + list_ranks(unready) +
                  ". A firewall may block connections between their hosts; "
                  "STRAIT_SOCKET_IFNAME chooses the interface on which ranks listen"});
    return;
  }
  const std::string who = roster_.ranks() == 0
                              ? "no rank joined at " + id_.root.to_string() + " by the deadline"
                              : "of " + std::to_string(roster_.ranks()) + " ranks these did not join at " +
                                    id_.root.to_string() + " by the deadline: " + list_ranks(roster_.missing());
  fail_all(
      {Code::timeout, who +
                          ". Check that they run and see their own errors; that they have the unique id of this job; "
                          "that no firewall blocks that address, else choose another interface by "
                          "STRAIT_SOCKET_IFNAME; or allow more time by STRAIT_INIT_TIMEOUT_MS" +
                          strangers});
}

bool Root::finished() const {
  if (failure_)
    return linger_.expired() ||
           (members_.empty() && (introduced_ || static_cast<int>(ranks_told_of_failure_.size()) >= expected_));
  return introduced_ &&
         std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.ready; });
}

/// Keeps a thread object in a forked child, neither joined nor detached: the parent's thread does not exist there, and
/// its handle may by now name a thread of the child's own.
void abandon(std::thread thread) {
  static auto* const abandoned = new std::list<std::thread>;  // never destroyed
  abandoned->push_back(std::move(thread));
}

/// A root and its thread.
class RunningRoot {
 public:
  RunningRoot(UniqueId id, Socket listener, RootOptions options)
      : address_(id.root), job_(options.job), owner_(::getpid()), root_(id, std::move(listener), std::move(options)) {
    thread_ = std::thread([this] {
      root_.run(stop_);
      finished_.store(true, std::memory_order_release);
    });
  }
  ~RunningRoot() {
    stop_.store(true, std::memory_order_relaxed);
    if (owner_ == ::getpid())
      thread_.join();
    else
      abandon(std::move(thread_));
  }
  RunningRoot(const RunningRoot&) = delete;
  RunningRoot& operator=(const RunningRoot&) = delete;

  bool finished() const { return finished_.load(std::memory_order_acquire); }
  bool failed() const { return root_.failed(); }
  const SocketAddress& address() const { return address_; }
  const std::string& job() const { return job_; }
  RootReport report() const {
    return {finished(), root_.roster().joined(), root_.strangers_dropped(), root_.roster().missing()};
  }

 private:
  SocketAddress address_;
  std::string job_;
  pid_t owner_;
  Root root_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> finished_{false};
  std::thread thread_;
};

struct Registry {
  std::mutex mutex;
  std::list<std::unique_ptr<RunningRoot>> roots;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

/// Ends the roots for which `is_over` is true; waits for their threads after releasing the registry's lock.
template <class IsOver>
void end_roots(Registry& registry, const IsOver& is_over) {
  std::list<std::unique_ptr<RunningRoot>> over;
  std::lock_guard lock(registry.mutex);
  for (auto next = registry.roots.begin(); next != registry.roots.end();)
    if (const auto root = next++; is_over(**root)) over.splice(over.end(), registry.roots, root);
}

/// Listens at the address, in place of a failed earlier root of this process: ranks that it would still tell of the
/// failure are to join the new root. Tries for 1 s: that root may not have noticed yet that its own rank gave up.
Result<Socket> listen_in_place_of_failed(Registry& registry, const SocketAddress& address) {
  for (const Deadline soon = Deadline::after_ms(1000);;) {
    end_roots(registry, [&](const RunningRoot& root) { return root.failed() && root.address() == address; });
    auto listener = listen_at(address);
    if (listener || soon.expired() || !report_of_root(address)) return listener;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

Result<UniqueId> start_root(UniqueId id, RootOptions options) {
  STRAIT_TRY(start_crypto());
  Registry& all = registry();
  end_roots(all, [&](const RunningRoot& root) {
    return root.finished() || (options.reserved != nullptr && root.address() == id.root);
  });
  STRAIT_ASSIGN(Socket listener,
                options.reserved != nullptr ? listen_on(*options.reserved) : listen_in_place_of_failed(all, id.root));
  STRAIT_ASSIGN(id.root, listener.local_address());
  std::lock_guard lock(all.mutex);
  try {
    all.roots.push_back(std::make_unique<RunningRoot>(id, std::move(listener), std::move(options)));
  } catch (const std::system_error& error) {
    return cannot_start_thread(error, "that waits for ranks");
  }
  return id;
}

void end_failed_root(const std::string& job) {
  end_roots(registry(), [&](const RunningRoot& root) { return root.failed() && root.job() == job; });
}

std::optional<RootReport> report_of_root(const SocketAddress& address) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  for (auto it = all.roots.rbegin(); it != all.roots.rend(); ++it)
    if ((*it)->address() == address) return (*it)->report();
  return std::nullopt;
}

}  // namespace strait
