#include "calls/watch.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/list_names.hpp"
#include "base/log.hpp"
#include "base/own_thread.hpp"
#include "calls/call.hpp"

namespace strait {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A wait of a few microseconds is common and worth spinning for; later the core is better left to others.
constexpr std::uint32_t spin_rounds = 4000;
constexpr auto sleep_after = milliseconds(20);
constexpr auto sleep_for = std::chrono::microseconds(50);
constexpr auto examine_every = milliseconds(5);
constexpr auto compare_after = milliseconds(100);
constexpr auto compare_rarely_after = milliseconds(500);
constexpr auto patience_after_deadline = milliseconds(100);

constexpr const char* advice_on_timeouts =
    "Look at what is going on there (strait trace on flight records shows who is behind), or allow more time by "
    "timeout_ms (STRAIT_TIMEOUT_MS)";

std::string in_seconds(milliseconds duration) { return std::to_string(duration.count() / 1000) + " s"; }

std::string has_waited(const std::string& who, milliseconds duration, const std::string& whom) {
  return who + " has waited " + in_seconds(duration) + " for " + whom;
}

}  // namespace

/// Collectives of a group may share a launch (device_aggregates.hpp), which only fits those of the same group on other
/// ranks.
std::string advice_on_groups(const CallSignature& a, const CallSignature& b) {
  if (!differ_in_grouping(a, b)) return "";
  return ", and in the same groups; STRAIT_AGGREGATE=0 on all ranks serves a program that groups them differently";
}

Watch::Watch(Transport& transport, Peers peers)
    : control_(transport.control()),
      controls_(transport.rank_controls()),
      transport_(transport),
      peers_(std::move(peers)) {}

Status Watch::sticky() const {
  const std::uint32_t first = control_.abort.load(std::memory_order_acquire);
  if (first == 0) return {};
  const ErrorRecord& record = controls_[first - 1]->raised;
  Error error{static_cast<Code>(record.code), record.message};
  tell_once(error);
  return tl::unexpected(std::move(error));
}

void Watch::tell_once(const Error& error) const {
  if (peers_.on_failure && !told_.exchange(true)) peers_.on_failure(error);
}

Error Watch::raise(Error error) {
  std::uint32_t empty = 0;
  if (own_control().raised.state.compare_exchange_strong(empty, 1)) {
    write_error(control_, own_control(), peers_.rank, static_cast<std::uint32_t>(error.code), error.message);
    if (control_.abort.load(std::memory_order_acquire) == peers_.rank + 1) {
      tell_once(error);
      return error;  // sticky() would need memory
    }
  }
  // Another thread of this rank was first, and is about to write its error, unless it does not get to run.
  const auto deadline = Clock::now() + slow_wait;
  while (!has_failed()) {
    if (Clock::now() >= deadline) return error;
    sched_yield();
  }
  return sticky().error();
}

bool Watch::begin_step(std::uint64_t operation) {
  own_control().is_in_step.store(1, std::memory_order_relaxed);
  // Pairs with the fence in await_steps(): either this rank sees that another one has abandoned the operation, or that
  // one sees this rank in a step.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto has_abandoned = [&](const RankControl* rank) {
    const std::uint64_t abandoned = rank->abandoned.load(std::memory_order_acquire);
    return abandoned != 0 && abandoned <= operation;
  };
  if (!has_failed() || std::none_of(controls_.begin(), controls_.end(), has_abandoned)) return true;
  end_step();
  return false;
}

void Watch::await_steps(std::uint64_t operation) {
  std::uint64_t none = 0;
  // Only the first counts: the communicator stays failed.
  own_control().abandoned.compare_exchange_strong(none, operation);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto deadline = Clock::now() + slow_wait;  // ample: a step only copies or sums a slice
  for (std::uint32_t rank = 0; rank < controls_.size(); ++rank) {
    const auto is_in_step = [&] {
      return rank != peers_.rank && controls_[rank]->is_in_step.load(std::memory_order_acquire) != 0;
    };
    while (is_in_step() && Clock::now() < deadline) sched_yield();
    if (is_in_step())
      log_warn(static_cast<int>(peers_.rank),
               name_of(rank) + " has been at work on a failed operation for " + in_seconds(slow_wait) +
                   ", and may still read and write its buffers. Keep them, and look at what that thread is doing");
  }
}

Status Watch::pause(Backoff& backoff, const Waiting& waiting) {
  ++backoff.rounds;
  const bool yields = peers_.oversubscribed || backoff.rounds > spin_rounds;
  if (backoff.rounds % 64 == 0 || yields)
    if (has_failed()) return sticky();
  if (!yields) {
    relax();
    return {};
  }
  const bool asleep = backoff.began != Clock::time_point{} && backoff.examined - backoff.began > sleep_after;
  if (asleep)
    std::this_thread::sleep_for(sleep_for);
  else
    sched_yield();
  return examine(backoff, waiting);  // each time: on a busy machine a yield can take many milliseconds
}

/// Returns whether an operation has passed its deadline and been tried for a while since. If this process was stopped
/// until after the deadline, what it waits for may have come long ago, and nobody else is to be blamed.
bool Watch::is_overdue(Clock::time_point operation_began, Clock::time_point now) {
  if (!has_deadline() || now - operation_began < milliseconds(peers_.timeout_ms)) return false;
  if (std::exchange(overdue_, operation_began) != operation_began) overdue_since_ = now;
  return now - overdue_since_ >= patience_after_deadline;
}

Status Watch::examine(Backoff& backoff, const Waiting& waiting) {
  const auto now = Clock::now();
  if (backoff.began == Clock::time_point{}) backoff.began = backoff.examined = now;
  if (is_overdue(waiting.operation_began, now))
    return tl::unexpected(
        raise({Code::timeout, describe(waiting.signature) + " on " + name_of(peers_.rank) + " passed its deadline of " +
                                  std::to_string(peers_.timeout_ms) + " ms while waiting for " + blamed_names(waiting) +
                                  ". " + advice_on_timeouts}));
  if (now - backoff.examined < examine_every) return {};
  backoff.examined = now;
  const auto waited = now - backoff.began;
  STRAIT_TRY(check_lives(backoff, waiting));
  STRAIT_TRY(compare_if_due(backoff, waiting));
  if (!backoff.warned && waited >= slow_wait) {
    backoff.warned = true;
    warn_of_wait(describe(waiting.signature), slow_wait, blamed_names(waiting));
  }
  return {};
}

void Watch::warn_of_wait(const std::string& who, milliseconds duration, const std::string& whom) const {
  log_warn(
      static_cast<int>(peers_.rank),
      has_waited(who, duration, whom) +
          "; it goes on waiting. Look at what is going on there (strait trace on flight records shows who is behind)");
}

void Watch::tell_of_slow_wait(const std::string& who, milliseconds duration, std::uint32_t rank) {
  note_awaited(rank);
  warn_of_wait(who, duration, name_of(rank));
}

Error Watch::raise_gone(const std::string& who, std::uint32_t rank) {
  constexpr const char* has_exited_text =
      ", whose process has ended without destroying its communicator. Let it make the same calls as the others before "
      "it ends";
  return raise(
      {Code::remote_error, who + " needs " + name_of(rank) + (has_left(rank) ? has_left_text : has_exited_text)});
}

void Watch::raise_timeout(const std::string& who, std::int64_t timeout_ms, std::uint32_t rank) {
  raise({Code::timeout, who + " has waited longer than its deadline of " + std::to_string(timeout_ms) + " ms for " +
                            name_of(rank) + ". " + advice_on_timeouts});
}

/// Adds dead ranks that have not posted collective `sequence`. A collective needs all ranks, even if at the moment this
/// rank waits for another one. That one may never call either: its set-up call has failed because of the dead rank, and
/// it is in no collective that would tell this to the others.
void Watch::add_missing(std::uint64_t sequence, std::vector<std::uint32_t>& awaited) const {
  for (std::uint32_t rank = 0; rank < peers_.names.size(); ++rank)
    if (has_died(rank) && !has_posted(*controls_[rank], sequence)) awaited.push_back(rank);
}

Status Watch::check_lives(Backoff& backoff, const Waiting& waiting) {
  // What a rank published before it went still counts. So it is missing only if it was gone at the last check, and the
  // operation, which has been tried since then, still waits for it.
  std::vector<std::uint32_t> gone;
  std::vector<std::uint32_t> awaited = waiting.awaited_ranks();
  if (!awaited.empty()) note_awaited(awaited.front());
  const bool waits_long = backoff.examined - backoff.began >= compare_after;
  if (waiting.sequence != 0 && waits_long) add_missing(waiting.sequence, awaited);
  std::copy_if(awaited.begin(), awaited.end(), std::back_inserter(gone),
               [this](std::uint32_t rank) { return has_left(rank) || has_died(rank); });
  // A rank that hears of a death leaves, and others may see that first. The error must be about the death.
  const bool any_died = std::any_of(gone.begin(), gone.end(), [this](std::uint32_t rank) { return has_died(rank); });
  for (std::uint32_t rank : gone) {
    const bool left = has_left(rank);
    if (left && (any_died || !waits_long)) continue;
    if (std::find(backoff.gone.begin(), backoff.gone.end(), rank) == backoff.gone.end()) continue;
    const std::string what = describe(waiting.signature) + " on " + name_of(peers_.rank) + " needs " + name_of(rank);
    return tl::unexpected(raise({Code::remote_error, what + (left ? has_left_text : ", " + cause_of_death(rank))}));
  }
  backoff.gone = std::move(gone);
  return {};
}

/// Slower ranks may post their call at any time, so this rank goes on comparing as long as it waits.
Status Watch::compare_if_due(Backoff& backoff, const Waiting& waiting) {
  const auto waited = backoff.examined - backoff.began;
  const bool is_rare = waited >= compare_rarely_after;
  if (waited < compare_after || (is_rare && backoff.examined - backoff.compared < compare_rarely_after)) return {};
  backoff.compared = backoff.examined;
  return waiting.sequence != 0 ? compare_calls(waiting.sequence, waiting.signature) : compare_last_call();
}

Status Watch::compare_last_call() {
  std::uint64_t last = 0;
  for (const PostedCall& each : own_control().calls)
    last = std::max(last, each.sequence.load(std::memory_order_relaxed));
  const auto call = last != 0 ? read_call(own_control(), last) : std::nullopt;
  return call ? compare_calls(last, call->signature) : Status();
}

Status Watch::compare_calls(std::uint64_t sequence, const CallSignature& own) {
  if (is_after_capture(own)) return {};
  for (std::uint32_t rank = 0; rank < peers_.names.size(); ++rank) {
    if (rank == peers_.rank) continue;
    const auto call = transport_.peer_call(sequence, rank);
    if (!call || call->signature == own || is_after_capture(call->signature)) continue;
    return tl::unexpected(raise(mismatch(own, rank, call->signature)));
  }
  return {};
}

Status Watch::compare_set_up(const std::string& own, std::uint64_t next) {
  for (std::uint32_t rank = 0; rank < peers_.names.size(); ++rank) {
    const auto call = rank != peers_.rank ? transport_.peer_call(next, rank) : std::nullopt;
    if (!call || is_after_capture(call->signature)) continue;
    return tl::unexpected(raise_difference(own, rank, "called " + describe(call->signature)));
  }
  return {};
}

Error Watch::raise_difference(const std::string& own, std::uint32_t rank, const std::string& other) {
  return raise(made_differently(own, rank, other, "collective calls, splits and registrations in the same order"));
}

/// A rank whose process has ended in good order may have done everything that this rank needs of it. Whoever waits for
/// it nevertheless tells (raise_gone()).
Status Watch::examine_peers() {
  for (std::uint32_t rank = 0; rank < peers_.names.size(); ++rank)
    if (has_died(rank) && !has_exited(rank))
      return tl::unexpected(raise(
          {Code::remote_error, name_of(peers_.rank) + " works with " + name_of(rank) + ", " + cause_of_death(rank)}));
  for (const PostedCall& each : own_control().calls) {
    const std::uint64_t sequence = each.sequence.load(std::memory_order_acquire);
    if (sequence == 0) continue;
    const auto call = read_call(each, sequence);
    if (call) STRAIT_TRY(compare_calls(sequence, call->signature));  // else it was overwritten meanwhile
  }
  return {};
}

Error Watch::mismatch(const CallSignature& own, std::uint32_t rank, const CallSignature& other) const {
  const bool alike = describe(own) == describe(other);
  const auto called = [&](const CallSignature& call) {
    return "called " + describe(call) + (alike ? " as its collective number " + std::to_string(number_of(call)) : "");
  };
  return made_differently(called(own), rank, called(other) + (alike ? " (modulo 4096)" : ""),
                          "collective calls in the same order" + advice_on_groups(own, other));
}

Error Watch::mismatch_of_messages(const CallSignature& received, std::uint32_t sender,
                                  const CallSignature& sent) const {
  return {Code::mismatch, "a receive does not fit its send: " + name_of(peers_.rank) + " receives " +
                              describe(received) + " from " + name_of(sender) + ", which sends " + describe(sent) +
                              ". A receive must have the count and type of its send"};
}

Error Watch::made_differently(const std::string& own, std::uint32_t rank, const std::string& other,
                              const std::string& rule) const {
  return {Code::mismatch, "ranks made different calls: " + name_of(peers_.rank) + " " + own + ", " + name_of(rank) +
                              " " + other + ". Every rank must make the same " + rule};
}

std::vector<std::uint32_t> Watch::late_ranks(std::uint64_t sequence) const {
  std::vector<std::uint32_t> late;
  for (std::uint32_t rank = 0; rank < controls_.size() && sequence != 0; ++rank)
    if (rank != peers_.rank && !has_posted(*controls_[rank], sequence)) late.push_back(rank);
  return late;
}

std::vector<std::uint32_t> Watch::ends_of_waits(const Waiting& waiting) const {
  std::vector<std::uint32_t> awaited = waiting.awaited_ranks();
  if (waiting.sequence == 0) return awaited;
  std::vector<std::uint32_t> ends;
  for (std::uint32_t rank : awaited)
    for (std::uint32_t each : end_of_waits(rank, waiting.sequence))
      if (std::find(ends.begin(), ends.end(), each) == ends.end()) ends.push_back(each);
  return ends;
}

std::vector<std::uint32_t> Watch::end_of_waits(std::uint32_t first, std::uint64_t sequence) const {
  std::vector<std::uint32_t> chain{first};
  for (;;) {
    const std::uint32_t noted = controls_[chain.back()]->awaited.load(std::memory_order_relaxed);
    if (noted == 0 || noted > controls_.size()) return {chain.back()};
    const std::uint32_t next = noted - 1;
    if (next == peers_.rank) return {first};
    // The note of a rank that is stopped may be old, and the rank that it names done.
    if (has_finished(*controls_[next], sequence)) return {chain.back()};
    if (const auto circle = std::find(chain.begin(), chain.end(), next); circle != chain.end())
      return {circle, chain.end()};
    chain.push_back(next);
  }
}

std::string Watch::blamed_names(const Waiting& waiting) const {
  const auto names_of = [this](std::span<const std::uint32_t> ranks) {
    std::vector<std::string> names;
    for (const std::uint32_t rank : ranks) names.emplace_back(name_of(rank));
    return list_names(names);
  };
  const std::vector<std::uint32_t> ends = ends_of_waits(waiting);
  std::vector<std::uint32_t> late = late_ranks(waiting.sequence);
  if (late.empty()) return ends.empty() ? "no rank in particular" : names_of(ends);
  // With a root a rank does not need all others. Those that it waits for come first; the rest may just not be there
  // yet.
  std::size_t needed = late.size();
  if (has_root(collective_of(waiting.signature))) {
    const auto rest = std::stable_partition(late.begin(), late.end(), [&](std::uint32_t rank) {
      return std::find(ends.begin(), ends.end(), rank) != ends.end();
    });
    if (rest != late.begin()) needed = static_cast<std::size_t>(rest - late.begin());
  }
  const auto first = std::span(late).first(needed), others = std::span(late).subspan(needed);
  std::string text = names_of(first) + (first.size() == 1 ? ", which has" : ", which have") + " not made this call";
  if (!others.empty()) text += std::string("; nor ") + (others.size() == 1 ? "has " : "have ") + names_of(others);
  return text;
}

}  // namespace strait
