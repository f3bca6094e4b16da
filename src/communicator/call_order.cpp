#include "communicator/call_order.hpp"

#include <chrono>
#include <thread>
#include <utility>

namespace strait {
namespace {

/// As long is_idle() waits for a word of the device's memory: a copy takes microseconds, but others may be before it.
constexpr auto reading_limit = std::chrono::milliseconds(5);
constexpr auto look_every = std::chrono::microseconds(10);

}  // namespace

Result<std::unique_ptr<CallOrder>> CallOrder::open(Setup setup) {
  std::unique_ptr<CallOrder> order(new CallOrder(std::move(setup)));
  for (Event* event : {&order->eager_.done, &order->captured_.done, &order->order_}) {
    STRAIT_ASSIGN(*event, order->setup_.driver->create_event());
  }
  return order;
}

CallOrder::~CallOrder() {
  for (const Event event : {eager_.done, captured_.done, order_})
    if (event != nullptr) setup_.driver->destroy_event(event);
  if (reading_stream_ != nullptr) setup_.reader->destroy_stream(reading_stream_);
}

Status CallOrder::begin(void* stream) {
  using Kind = staged::MemoryOperation::Kind;
  STRAIT_ASSIGN(now_, setup_.driver->look_at(stream));
  has_run_ = true;
  const Last& last = is_captured() ? captured_ : eager_;
  if (!last.exists || last.stream.capture_id != now_.capture_id || last.stream.id == now_.id) return {};
  if (last.tail == Tail::other) return setup_.driver->wait(stream, last.done);
  // All that count end, also those that give up; and they were enqueued before this wait, so that streams which share a
  // hardware queue do not wait in a circle.
  const staged::MemoryOperation all_finished{Kind::wait_at_least, setup_.finished, launched_};
  return setup_.driver->operate({&all_finished, 1}, stream);
}

Status CallOrder::end(void* stream, Tail tail) {
  Last& last = is_captured() ? captured_ : eager_;
  if (is_captured()) {
    tail = Tail::other;
    has_captured_ = true;
  }
  if (tail == Tail::other) STRAIT_TRY(setup_.driver->record(last.done, stream));
  last.exists = true;
  last.tail = tail;
  last.stream = now_;
  return {};
}

Status CallOrder::order(void* first, void* then) {
  STRAIT_TRY(setup_.driver->record(order_, first));
  return setup_.driver->wait(then, order_);
}

/// Every call ends with the event or with blocks that count, and what is called comes in order.
std::optional<bool> CallOrder::is_idle() {
  if (!has_run_) return true;
  const std::optional<bool> passed = setup_.driver->has_passed(eager_.done);
  if (!passed || !*passed) return passed;
  const std::optional<std::uint32_t> finished = read_finished();
  if (!finished) return std::nullopt;
  if (*finished != launched_) return false;
  if (has_captured_) return std::nullopt;
  return true;
}

/// By a copy on a stream of its own. It waits for nothing, so that nothing is held up by the question, as by a stream
/// that waits in a hardware queue which it shares. Nothing if the copy does not come soon.
std::optional<std::uint32_t> CallOrder::read_finished() {
  const std::lock_guard lock(reading_);
  staged::StreamDriver& reader = *setup_.reader;
  if (reading_stream_ == nullptr) {
    const auto stream = reader.create_stream();
    if (!stream) return std::nullopt;
    reading_stream_ = *stream;
  }
  if (!reader.is_idle(reading_stream_)) return std::nullopt;  // with the copy for an earlier question
  if (!reader.copy({setup_.seen, 0, setup_.finished, 0, sizeof *setup_.finished}, reading_stream_)) return std::nullopt;
  const auto limit = std::chrono::steady_clock::now() + reading_limit;
  while (!reader.is_idle(reading_stream_)) {
    if (std::chrono::steady_clock::now() > limit) return std::nullopt;
    std::this_thread::sleep_for(look_every);
  }
  return std::atomic_ref(*setup_.seen).load(std::memory_order_acquire);
}

}  // namespace strait
