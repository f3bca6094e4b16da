#include "device/started_calls.hpp"

#include <algorithm>
#include <array>
#include <atomic>

namespace strait {

static_assert(kernels::kept_marks == posted_calls, "each mark has a place of its own");

std::uint32_t StartedCalls::mark_of(const CallSignature& signature) { return std::max(hash_of(signature), 1u); }

void StartedCalls::know(const Known& call) {
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

void StartedCalls::look(kernels::Mailbox& mailbox, Watch& watch, const Read& read) {
  if (const std::uint32_t waits = std::atomic_ref(mailbox.waits).exchange(0); waits != 0) {
    put_down_waits(mailbox, watch.own_control());
    watch.ask_what_started();
    (void)watch.see_kernel_waiting(waits - 1);
    looks_since_wait_ = 0;
  } else if (++looks_since_wait_ == short_wait_looks) {
    watch.forget_awaited();
  }
  const bool was_asked = watch.was_asked_what_started();
  if (!was_asked && ++looks_ < most_looks) return;
  looks_ = 0;
  if (const auto counts = read()) put_down(counts->started, mailbox, watch.own_control());
}

void StartedCalls::put_down_waits(kernels::Mailbox& mailbox, RankControl& control) {
  // Taken, for a mark that stays there for very long would look newer than what has come since.
  const auto take = [](std::uint64_t& word) { return std::atomic_ref(word).exchange(0, std::memory_order_acquire); };
  kernels::StartedMarks started{};
  std::transform(std::begin(mailbox.started.calls), std::end(mailbox.started.calls), std::begin(started.calls), take);
  started.messages = take(mailbox.started.messages);
  put_down(started, mailbox, control);
}

void StartedCalls::put_down(const kernels::StartedMarks& started, kernels::Mailbox& mailbox, RankControl& control) {
  // What starts behind a call that gave up does so as well.
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
  // Calls run one after another: what is not the last one has finished.
  for (PostedCall& call : control.started) {
    const std::uint64_t sequence = call.sequence.load(std::memory_order_relaxed);
    if (sequence != 0 && sequence < newest_ && call.finished_ticks.load(std::memory_order_relaxed) == 0)
      call.finished_ticks.store(ticks_now(), std::memory_order_relaxed);
  }
  Mark messages = read(started.messages);
  if (messages.call == 0) return;
  ++messages.sequence;  // of an entry it is never 0
  write(control.started_messages, messages);
}

/// A call that is not known yet is looked for again the next time.
void StartedCalls::write(PostedCall& place, const Mark& mark) const {
  const std::uint64_t there = place.sequence.load(std::memory_order_relaxed);
  if (there > mark.sequence) return;  // a newer copy was put down meanwhile
  if (there == mark.sequence && place.input.load(std::memory_order_relaxed) == mark.call) return;
  const auto known = known_.find(mark.call);
  if (known == known_.end()) return;
  write_call(place, mark.sequence,
             {.signature = known->second.signature,
              .input = mark.call,
              .output = known->second.has_parts || known->second.is_captured ? 1u : 0u});
}

}  // namespace strait
