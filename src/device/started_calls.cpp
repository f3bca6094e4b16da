#include "device/started_calls.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "base/hash.hpp"

namespace strait {
namespace {

/// How often a kernel must report a wait that cannot end before that is an error. It reports every twentieth of a
/// second or less often.
constexpr std::uint32_t times_seen = 5;

/// What a GPU has started last: a collective, or a group of messages.
struct Started {
  std::uint64_t number;  ///< number of the collective; for messages that of the next collective
  bool is_messages;
  std::uint64_t mark;
  CallSignature signature;
};
std::optional<Started> last_started(const RankControl& control) {
  std::optional<Started> last;
  const auto look = [&last](const PostedCall& each, bool is_messages) {
    const std::uint64_t number = each.sequence.load(std::memory_order_acquire);
    if (number == 0 || (last && number <= last->number)) return;
    if (const auto call = read_call(each, number)) last = {number, is_messages, call->input, call->signature};
  };
  for (const PostedCall& each : control.started) look(each, false);
  look(control.started_messages, true);
  return last;
}
std::uint64_t hash_of(const Started& started) {
  return mix(started.number * 2 + (started.is_messages ? 1 : 0)) ^ started.mark;
}

}  // namespace

static_assert(kernels::kept_marks == posted_calls, "each mark has a place of its own");

void StartedCalls::note_call(const Known& call) {
  if (call == last_) return;
  last_ = call;
  const std::scoped_lock lock(mutex_);
  if (known_.size() >= most_known) std::erase_if(known_, [](const auto& each) { return !each.second.is_captured; });
  Known& known = known_.try_emplace(mark_of(call.signature), call).first->second;
  known.is_captured |= call.is_captured;
  known.has_parts |= call.has_parts;
}

StartedCalls::Mark StartedCalls::read(std::uint64_t mark) const {
  const auto ahead =
      static_cast<std::int32_t>(static_cast<std::uint32_t>(mark >> 32) - static_cast<std::uint32_t>(newest_));
  return {newest_ + static_cast<std::uint64_t>(std::int64_t{ahead}), static_cast<std::uint32_t>(mark)};
}

void StartedCalls::poll(kernels::Mailbox& mailbox, Watch& watch, const Read& read, const RankOf& rank_of) {
  if (const std::uint32_t waits = std::atomic_ref(mailbox.waits).exchange(0); waits != 0) {
    record_marks_of_waiting(mailbox, watch.own_control());
    watch.own_control().mark_requests.fetch_add(1, std::memory_order_release);
    (void)see_kernel_waiting(watch, rank_of(waits - 1));
    polls_since_wait_ = 0;
  } else if (++polls_since_wait_ == short_wait_polls) {
    watch.forget_awaited();
  }
  const bool is_requested = has_new_requests(watch);
  if (!is_requested && ++polls_ < most_polls) return;
  polls_ = 0;
  if (const auto counts = read()) record(counts->started, mailbox, watch.own_control());
}

bool StartedCalls::has_new_requests(const Watch& watch) {
  std::uint32_t requests = 0;
  for (std::uint32_t rank = 0; rank < watch.ranks(); ++rank)
    requests += watch.control_of(rank).mark_requests.load(std::memory_order_acquire);
  return std::exchange(requests_seen_, requests) != requests;
}

/// Several reports are needed: what a rank sent before it went still counts, and the first report that is seen may have
/// been written before it went.
Status StartedCalls::see_kernel_waiting(Watch& watch, std::optional<std::uint32_t> rank) {
  if (!rank || *rank >= watch.ranks()) {
    watch.forget_awaited();
    return {};
  }
  watch.note_awaited(*rank);
  Awaited& awaited = awaited_[*rank];
  if (!watch.has_gone(*rank)) return see_opposed(watch, *rank, awaited);
  if (++awaited.times_gone < times_seen) return {};
  return tl::unexpected(watch.raise_gone("a kernel on " + watch.name_of(watch.rank()), *rank));
}

/// Raises an error if the two ranks wait for each other, one in a collective and one in a group of messages. Messages
/// have no number by which they could be compared. But a GPU makes one call after another: a rank that is in a
/// collective has already made all its messages before that, so that nobody still waits for them. Only a wait that the
/// other rank has reported again counts: Watch::forget_awaited() comes late, and the rank may have gone on to compute.
Status StartedCalls::see_opposed(Watch& watch, std::uint32_t rank, Awaited& awaited) {
  if (watch.control_of(rank).awaited.load(std::memory_order_relaxed) != watch.rank() + 1) return {};
  const auto own = last_started(watch.own_control()), other = last_started(watch.control_of(rank));
  if (!own || !other || own->is_messages == other->is_messages) return {};
  const Started &messages = own->is_messages ? *own : *other, &collective = own->is_messages ? *other : *own;
  if (collective.number < messages.number) return {};
  const std::uint64_t own_call = hash_of(*own), call = hash_of(*other);
  if (awaited.own_call != own_call || awaited.call != call) awaited = {.own_call = own_call, .call = call};
  const std::uint32_t reports = watch.control_of(rank).mark_requests.load(std::memory_order_acquire);
  if (std::exchange(awaited.reports, reports) == reports || ++awaited.times_opposed < times_seen) return {};
  return tl::unexpected(watch.raise(watch.made_differently(
      "has started " + describe(own->signature), rank,
      describe(other->signature) + ", and each GPU waits for the other",
      "collective calls in the same order, in graphs, too, and messages between the same two of them")));
}

Status StartedCalls::compare(Watch& watch) {
  for (const PostedCall& each : watch.own_control().started) {
    const std::uint64_t sequence = each.sequence.load(std::memory_order_acquire);
    if (sequence == 0) continue;
    const auto call = read_call(each, sequence);
    if (call) STRAIT_TRY(compare(watch, sequence, call->signature));  // else it was overwritten meanwhile
  }
  return {};
}

/// Every GPU counts every collective that kernels carry, and nothing else. So, however far apart the ranks are, and
/// even if one rank captures what another calls directly, collectives with the same number must be the same call.
/// Different calls with the same hash are taken for the same one.
Status StartedCalls::compare(Watch& watch, std::uint64_t sequence, const CallSignature& own) {
  for (std::uint32_t rank = 0; rank < watch.ranks(); ++rank) {
    if (rank == watch.rank()) continue;
    const auto call = read_call(watch.control_of(rank).started[sequence % posted_calls], sequence);
    if (!call || hash_of(call->signature) == hash_of(own)) continue;
    return tl::unexpected(watch.raise(watch.made_differently(
        "has started " + describe(own) + " as number " + std::to_string(sequence) + " of the collectives on its GPU",
        rank, describe(call->signature),
        "collective calls in the same order, in graphs, too" + advice_on_groups(own, call->signature))));
  }
  return {};
}

void StartedCalls::record_marks_of_waiting(kernels::Mailbox& mailbox, RankControl& control) {
  // Marks are taken out: one that stays there for very long would look newer than those that have come since.
  const auto take = [](std::uint64_t& word) { return std::atomic_ref(word).exchange(0, std::memory_order_acquire); };
  kernels::StartedMarks started{};
  std::transform(std::begin(mailbox.started.calls), std::end(mailbox.started.calls), std::begin(started.calls), take);
  started.messages = take(mailbox.started.messages);
  record(started, mailbox, control);
}

void StartedCalls::record(const kernels::StartedMarks& started, kernels::Mailbox& mailbox, RankControl& control) {
  // Calls that start behind one that gave up give up as well.
  if (std::atomic_ref(mailbox.abort).load() != 0 || std::atomic_ref(mailbox.timed_out).load() != 0) return;
  const std::scoped_lock lock(mutex_);
  std::array<Mark, kernels::kept_marks> marks;
  std::transform(std::begin(started.calls), std::end(started.calls), marks.begin(),
                 [&](std::uint64_t word) { return read(word); });
  for (const Mark& mark : marks) {
    if (mark.call == 0) continue;
    newest_ = std::max(newest_, mark.sequence);
    write(control.started[mark.sequence % posted_calls], mark);
  }
  // Calls run one after another: all but the last one have finished.
  for (PostedCall& call : control.started) {
    const std::uint64_t sequence = call.sequence.load(std::memory_order_relaxed);
    if (sequence != 0 && sequence < newest_ && call.finished_ticks.load(std::memory_order_relaxed) == 0)
      call.finished_ticks.store(ticks_now(), std::memory_order_relaxed);
  }
  Mark messages = read(started.messages);
  if (messages.call == 0) return;
  ++messages.sequence;  // 0 would mean that there is no entry
  write(control.started_messages, messages);
}

/// Records a mark. A call that is not known yet is looked for again at the next recording.
void StartedCalls::write(PostedCall& place, const Mark& mark) const {
  const std::uint64_t there = place.sequence.load(std::memory_order_relaxed);
  if (there > mark.sequence) return;  // a newer copy was recorded meanwhile
  if (there == mark.sequence && place.input.load(std::memory_order_relaxed) == mark.call) return;
  const auto known = known_.find(mark.call);
  if (known == known_.end()) return;
  write_call(place, mark.sequence,
             {.signature = known->second.signature,
              .input = mark.call,
              .output = known->second.has_parts || known->second.is_captured ? 1u : 0u});
}

}  // namespace strait
