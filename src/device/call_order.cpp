#include "device/call_order.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/log.hpp"

namespace strait {
namespace {

/// How long read_counts() waits for its copy: it takes microseconds, but others may be before it.
constexpr auto reading_limit = std::chrono::milliseconds(5);
constexpr auto poll_interval = std::chrono::microseconds(10);
constexpr auto longest_end = std::chrono::seconds(10);

std::string so_long() { return std::to_string(longest_end.count()) + " s"; }

}  // namespace

Result<std::unique_ptr<CallOrder>> CallOrder::open(Setup setup) {
  std::unique_ptr<CallOrder> order(new CallOrder(std::move(setup)));
  for (Event* event : {&order->done_, &order->order_}) {
    STRAIT_ASSIGN(*event, order->setup_.driver->create_event());
  }
  return order;
}

CallOrder::~CallOrder() {
  for (const Event event : {done_, order_})
    if (event != nullptr) setup_.driver->destroy_event(event);
  for (const Capture& capture : captures_) setup_.driver->destroy_event(capture.done);
  if (joining_stream_ != nullptr) setup_.driver->destroy_stream(joining_stream_);
  if (reading_stream_ == nullptr) return;
  // The last copy of read_counts() may not have ended yet. It waits only for other copies, or for what is before it in
  // a hardware queue; as that may need what this thread does next, there is a limit, after which the stream is leaked.
  const auto limit = std::chrono::steady_clock::now() + longest_end;
  while (!setup_.reader->is_idle(reading_stream_)) {
    if (std::chrono::steady_clock::now() > limit) return;
    std::this_thread::sleep_for(poll_interval);
  }
  setup_.reader->destroy_stream(reading_stream_);
}

Result<bool> CallOrder::look_at(void* stream) {
  STRAIT_ASSIGN(now_, setup_.driver->look_at(stream));
  looked_at_ = stream;
  return is_captured();
}

Status CallOrder::begin(void* stream) {
  using Kind = copy_engine::MemoryOperation::Kind;
  if (std::exchange(looked_at_, std::nullopt) != stream) {
    STRAIT_ASSIGN(now_, setup_.driver->look_at(stream));
  }
  has_run_ = true;
  if (is_captured()) return begin_captured(stream);
  if (joined_) return setup_.driver->wait(stream, done_);  // a graph may have been launched since, on any stream
  if (!last_.exists || last_.stream.id == now_.id) return {};
  if (last_.tail == Tail::other) return setup_.driver->wait(stream, done_);
  // All counted blocks end, also those that give up. And they were enqueued before this wait, so that streams that
  // share a hardware queue do not wait for one another in a circle.
  const copy_engine::MemoryOperation all_finished{Kind::wait_at_least, &setup_.counts->finished, launched_};
  return setup_.driver->operate({&all_finished, 1}, stream);
}

/// Calls of several captures may alternate. Only the latest captures are remembered: one that has made no call for long
/// may be treated as a new one.
Status CallOrder::begin_captured(void* stream) {
  constexpr std::size_t most_captures = 16;
  STRAIT_TRY(join_graphs());
  const auto known = std::find_if(captures_.begin(), captures_.end(),
                                  [&](const Capture& capture) { return capture.stream.capture_id == now_.capture_id; });
  if (known != captures_.end()) {
    std::rotate(captures_.begin(), known, known + 1);
    if (captures_.front().stream.id == now_.id) return {};
    return setup_.driver->wait(stream, captures_.front().done);
  }
  if (captures_.size() == most_captures) {
    captures_.push_front(std::move(captures_.back()));
    captures_.pop_back();
    captures_.front().end = {};
  } else {
    STRAIT_ASSIGN(const Event done, setup_.driver->create_event());
    captures_.push_front({{}, done, {}});
  }
  captures_.front().stream = now_;
  return joined_ ? setup_.driver->wait_external(stream, done_) : Status();
}

/// At the first capture: makes done_ stand for all calls before it.
Status CallOrder::join_graphs() {
  using Kind = copy_engine::MemoryOperation::Kind;
  if (joined_ || !setup_.joins_graphs) return {};
  if (last_.exists && last_.tail == Tail::counted_launch) {
    STRAIT_ASSIGN(joining_stream_, setup_.driver->create_stream());
    const copy_engine::MemoryOperation all_finished{Kind::wait_at_least, &setup_.counts->finished, launched_};
    STRAIT_TRY(setup_.driver->operate({&all_finished, 1}, joining_stream_));
    STRAIT_TRY(setup_.driver->record(done_, joining_stream_));
  }
  joined_ = true;
  return {};
}

Status CallOrder::end(void* stream, Tail tail) {
  if (is_captured()) {
    Capture& capture = captures_.front();
    capture.stream = now_;
    STRAIT_TRY(setup_.driver->record(capture.done, stream));
    return setup_.driver->record_external(done_, stream, capture.end);  // without joins_graphs only for is_idle()
  }
  if (joined_ || tail == Tail::other) STRAIT_TRY(setup_.driver->record(done_, stream));
  last_ = {true, tail, now_};
  return {};
}

/// Makes no wait between a capture and work outside of it: CUDA would pull that work into the capture, or refuse.
Status CallOrder::order(void* first, void* then) {
  STRAIT_ASSIGN(const copy_engine::StreamState before, setup_.driver->look_at(first));
  STRAIT_ASSIGN(const copy_engine::StreamState after, setup_.driver->look_at(then));
  if (before.id == after.id || before.capture_id != after.capture_id) return {};
  STRAIT_TRY(setup_.driver->record(order_, first));
  return setup_.driver->wait(then, order_);
}

/// is_idle() tells of all calls, because each ends with the event or with counted blocks, and calls are ordered.
bool CallOrder::await_idle(const std::function<bool()>& has_failed) {
  std::optional<std::chrono::steady_clock::time_point> failed_at;
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(200))) {
    const std::optional<bool> idle = is_idle();
    if (idle == true) return true;
    if (!idle && device_has_failed()) return true;
    if (!has_failed()) continue;
    const auto now = std::chrono::steady_clock::now();
    if (!failed_at) failed_at = now;
    if (now - *failed_at > longest_end) return false;
  }
}

Status CallOrder::has_not_ended(int device) {
  return fail(Code::aborted, "calls on GPU " + std::to_string(device) + " have not ended " + so_long() +
                                 " after the communicator failed. Let what else runs there end");
}

void CallOrder::warn_not_ended(std::uint32_t rank, int device) {
  log_warn(static_cast<int>(rank), "what was enqueued on an aborted communicator has not ended after " + so_long() +
                                       ", perhaps for other work before it on its stream; its memory of GPU " +
                                       std::to_string(device) + " is not freed");
}

std::optional<bool> CallOrder::is_idle() {
  if (!has_run_) return true;
  const std::optional<bool> passed = setup_.driver->has_passed(done_);
  if (!passed || !*passed) return passed;
  const auto counts = read_counts();
  if (!counts) return std::nullopt;
  return counts->finished == launched_;
}

/// Copies the counters on a stream of its own, which never waits for anything. So the copy holds nothing up, as a
/// stream that waits would in a hardware queue that it shares. Returns nothing if the copy does not end soon.
std::optional<kernels::LaunchCounts> CallOrder::read_counts() {
  const std::lock_guard lock(reading_);
  copy_engine::StreamDriver& reader = *setup_.reader;
  if (reading_stream_ == nullptr) {
    const auto stream = reader.create_stream();
    if (!stream) return std::nullopt;
    reading_stream_ = *stream;
  }
  if (!reader.is_idle(reading_stream_)) return std::nullopt;  // the copy of an earlier call
  if (!reader.copy({setup_.seen, 0, setup_.counts, 0, sizeof *setup_.counts}, reading_stream_)) return std::nullopt;
  const auto limit = std::chrono::steady_clock::now() + reading_limit;
  while (!reader.is_idle(reading_stream_)) {
    if (std::chrono::steady_clock::now() > limit) return std::nullopt;
    std::this_thread::sleep_for(poll_interval);
  }
  // The stream is idle, so the copy is complete: `seen` must not be read earlier than that was found.
  std::atomic_thread_fence(std::memory_order_acquire);
  return *setup_.seen;
}

std::optional<bool> is_idle_as_asked(TimeLimitedQuestions& questions, CallOrder& order,
                                     std::chrono::milliseconds limit) {
  using Answer = std::optional<std::optional<bool>>;
  const auto is_idle = [&order]() -> Answer {
    const std::optional<bool> idle = order.is_idle();
    // A device that has failed answers nothing any more.
    return idle || order.device_has_failed() ? Answer(idle) : Answer();
  };
  return questions.ask_again(is_idle, limit).value_or(std::nullopt);
}

}  // namespace strait
