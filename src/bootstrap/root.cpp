#include "bootstrap/root_service.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/log.hpp"
#include "base/shortage.hpp"

namespace strait {
namespace {

/// How long before its deadline a rank is told that others are missing, while it still listens for that.
std::int64_t margin_ms(std::int64_t remaining_ms) { return std::clamp<std::int64_t>(remaining_ms / 10, 5, 500); }

/// The shortest time in which a rank is to answer an inquiry: it may look for one every 50 ms only.
constexpr std::int64_t least_inquiry_ms = 150;

}  // namespace

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
  if (hand_out_) hand_out_.serve(id_.pack());
  for (Connection& connection : doorman_.admit()) members_.push_back({std::move(connection)});
  for (Member& member : members_) serve(member);
  std::erase_if(members_, [](const Member& member) {
    return member.connection.ended() || (member.closing && !member.connection.wants_write());
  });
  if (roster_.complete() && !introduced_ && !failure_) introduce();
  inquire();
  check_deadline();
  remind();
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
      const std::string who = member.rank < 0 ? "a peer" : describe_rank(roster_.member(member.rank));
      fail_all({Code::remote_error, who + " sent " + frame.error().message});
      return;
    }
    if (!*frame) break;
    take(member, **frame);
  }
  if (member.connection.ended() && member.rank >= 0 && !member.ready && !member.closing && !failure_)
    fail_all(
        {Code::remote_error, describe_rank(roster_.member(member.rank)) +
                                 " went away while the ranks were joining: it died, or gave up (see its own error)"});
}

void Root::take(Member& member, const Frame& frame) {
  if (frame.type == FrameType::join && member.rank < 0) return take_join(member, frame);
  if (frame.type == FrameType::ready && introduced_) {
    member.ready = true;
    return;
  }
  if (frame.type == FrameType::account && introduced_) {
    if (auto account = decode_error(frame.payload)) member.account = std::move(*account);
    member.answer_due = Deadline::never();
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
  if (failure_ && ranks_try_again() && ranks_told_of_failure_.contains(message->rank))
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
    member.rank = rank;
    tell_failure(member);
    return;
  }
  member.rank = rank;
  if (!reminder_) reminder_.emplace(-1, remind_after_ms_);
  if (remaining_ms < Deadline::never().remaining_ms())
    deadline_ = earlier(deadline_, Deadline::after_ms(remaining_ms - margin_ms(remaining_ms)));
}

/// Whether ranks that have been told of a failure find the next root in the same place.
bool Root::ranks_try_again() const { return rank_set_ || hand_out_ || id_.root_may_be_late; }

Status Root::is_of_this_set(const JoinMessage& message) const {
  if (!rank_set_) return {};
  const auto theirs = std::find_if(message.settings.begin(), message.settings.end(),
                                   [&](const Setting& setting) { return setting.name == rank_set_->name; });
  if (theirs != message.settings.end() && theirs->value == rank_set_->value) return {};
  const std::string value = theirs == message.settings.end() ? "nothing" : "\"" + theirs->value + "\"";
  return fail(Code::mismatch, rank_set_->name + " is " + value + " on " + describe_rank(message) + ", and \"" +
                                  rank_set_->value + "\" on the one that it joins. Give the same on all ranks");
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
  introduced_ = true;
  reminder_.emplace(-1, remind_after_ms_);
  inquiry_ms_ = std::clamp<std::int64_t>(deadline_.remaining_ms() / 8, least_inquiry_ms, 1000);
  next_inquiry_ = Deadline::after_ms(inquiry_ms_);
  // From here on the set is complete: a rank that connects now wants the next root.
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
  // Ranks of this process come last: once they know, they may end it, and this thread with it.
  const auto is_own = [&](const Member& member) {
    return member.rank >= 0 && roster_.member(member.rank).pid == ::getpid();
  };
  for (const bool own : {false, true})
    for (Member& member : members_)  // those without a rank may belong to another set, as their join will show
      if ((!rank_set_ || member.rank >= 0) && is_own(member) == own) tell_failure(member);
}

void Root::tell_failure(Member& member) {
  if (!member.closing) member.connection.send(FrameType::error, encode(*failure_));
  member.closing = true;
  if (member.rank >= 0) ranks_told_of_failure_.insert(member.rank);
}

/// Asks ranks that are not connected to their neighbours yet what they wait for, so that those that are stopped can be
/// told from those that wait for them.
void Root::inquire() {
  if (failure_ || !next_inquiry_.expired()) return;
  next_inquiry_ = Deadline::after_ms(inquiry_ms_);
  for (Member& member : members_) {
    if (member.ready || member.closing || !member.answer_due.is_never()) continue;
    member.connection.send(FrameType::inquiry, {});
    member.answer_due = Deadline::after_ms(inquiry_ms_);
  }
}

std::vector<UnreadyRank> Root::unready() const {
  std::map<int, UnreadyRank> by_rank;
  for (const Member& member : members_)
    if (!member.ready && member.rank >= 0)
      by_rank[member.rank] = {describe_rank(roster_.member(member.rank)), member.answer_due.expired(), member.account};
  std::vector<UnreadyRank> ranks;
  for (auto& [rank, unready] : by_rank) ranks.push_back(std::move(unready));
  return ranks;
}

/// Says in the log now and then which ranks are missing, or do not get connected.
void Root::remind() {
  if (!reminder_ || failure_ || finished()) return;
  const auto waited = reminder_->due();
  if (!waited) return;
  log_warn(-1, introduced_ ? "all " + std::to_string(roster_.ranks()) + " ranks have joined, but after " + *waited +
                                 " they are not all connected: " + describe_unready(unready())
                           : roster_.describe_missing(*waited, names_, shortage()) + doorman_.describe_drops());
}

/// Says why ranks could not be accepted, as a sentence without its full stop; "" if all could. Where that is so, it is
/// likelier the reason why ranks are missing than anything about these ranks or the network.
std::string Root::shortage() const {
  if (doorman_.accept_error().empty()) return "";
  return "The process that introduces the ranks says: " + doorman_.accept_error();
}

void Root::check_deadline() {
  if (failure_ || !deadline_.expired()) return;
  if (introduced_) {
    fail_all({Code::timeout, "all " + std::to_string(roster_.ranks()) +
                                 " ranks joined, but not all were connected to their neighbours by the deadline: " +
                                 describe_unready(unready())});
    return;
  }
  fail_all(roster_.missing_at_deadline(id_.root, names_, shortage(), doorman_.describe_drops()));
}

bool Root::finished() const {
  if (failure_)
    return linger_.expired() ||
           (members_.empty() && (introduced_ || static_cast<int>(ranks_told_of_failure_.size()) >= expected_));
  return introduced_ &&
         std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.ready; });
}

}  // namespace strait
