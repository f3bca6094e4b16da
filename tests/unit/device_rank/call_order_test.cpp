// Calls of a communicator run one after another, on whatever streams they are made. Streams are threads here.
#include "device/call_order.hpp"

#include <gtest/gtest.h>

#include <array>

#include "support/fake_streams.hpp"

namespace strait::testing {
namespace {

using Stream = copy_engine::StreamDriver::Stream;
using Tail = CallOrder::Tail;
using namespace std::chrono_literals;

/// Makes calls whose work is a check that no other call runs, and that all earlier ones have run.
class Calls {
 public:
  explicit Calls(std::uint64_t seed = 1, bool one_queue = false, bool joins_graphs = true) {
    auto driver = std::make_unique<FakeStreams>(FakeStreams::Options{.seed = seed, .one_queue = one_queue});
    auto reader = std::make_unique<FakeStreams>(FakeStreams::Options{.seed = seed, .one_queue = true});
    driver_ = driver.get();
    reader_ = reader.get();
    auto order = CallOrder::open({std::move(driver), std::move(reader), &counts_, &seen_, joins_graphs});
    if (!order) throw std::runtime_error(order.error().message);
    order_ = std::move(*order);
  }
  ~Calls() { finish(); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  Stream stream() { return streams_.emplace_back(driver_->create_stream().value()); }
  void forget(Stream stream) { driver_->forget(stream); }

  void call(Stream stream, Tail tail, std::uint32_t blocks = 3, const std::function<void()>& work = {}) {
    ASSERT_TRUE(order_->begin(stream));
    std::uint32_t* const word = order_->finished();
    driver_->run(stream, [=, this, number = calls_++] {
      EXPECT_FALSE(runs_.exchange(true)) << "call " << number << " did not wait for another";
      EXPECT_EQ(ended_, number);
      if (work) work();
      ++ended_;
      runs_ = false;
      if (tail == Tail::counted_launch && word != nullptr)
        std::atomic_ref(*word).fetch_add(blocks, std::memory_order_release);
    });
    if (tail == Tail::counted_launch) order_->launched(blocks);
    ASSERT_TRUE(order_->end(stream, tail));
  }
  /// Makes a call that is captured.
  void record(Stream stream) {
    ASSERT_TRUE(order_->begin(stream));
    EXPECT_EQ(order_->finished(), nullptr);
    driver_->run(stream, [this, place = recorded_++] {
      EXPECT_FALSE(runs_.exchange(true)) << "a captured call did not wait for another";
      EXPECT_EQ(ended_, first_of_replay_.at(replayed_ / recorded_) + place);
      ++replayed_;
      ++ended_;
      runs_ = false;
    });
    ASSERT_TRUE(order_->end(stream, Tail::counted_launch));
  }
  /// Launches the graph of the calls that were captured.
  void replay() {
    first_of_replay_.at(replays_++) = calls_;
    calls_ += recorded_;
    driver_->replay();
  }
  /// Waits until everything enqueued is done.
  void finish() {
    for (const Stream stream : streams_) driver_->destroy_stream(stream);
  }

  CallOrder& order() { return *order_; }
  FakeStreams& driver() { return *driver_; }
  FakeStreams& reader() { return *reader_; }
  std::uint64_t calls() const { return calls_; }
  std::uint64_t ended() const { return ended_; }
  std::uint32_t finished() const { return counts_.finished; }
  kernels::LaunchCounts& counts() { return counts_; }

 private:
  kernels::LaunchCounts counts_{}, seen_{};
  std::uint64_t calls_ = 0, ended_ = 0;  ///< the second is accessed only by the call that runs
  std::atomic<bool> runs_ = false;
  std::atomic<std::uint64_t> recorded_ = 0, replayed_ = 0;  ///< number of captured calls, and how often one has run
  std::size_t replays_ = 0;
  std::array<std::atomic<std::uint64_t>, 200> first_of_replay_{};  ///< by replay: the number of its first call
  std::vector<Stream> streams_;
  std::unique_ptr<CallOrder> order_;
  FakeStreams *driver_ = nullptr, *reader_ = nullptr;
};

/// Asks whether the GPU is idle, again as long as the answer is unknown, which it may be on a busy machine.
std::optional<bool> ask(Calls& calls) {
  std::optional<bool> idle;
  for (int i = 0; i < 10'000 && !idle; ++i) {
    idle = calls.order().is_idle();
    if (!idle) std::this_thread::sleep_for(1ms);
  }
  return idle;
}

Tail random_tail(std::mt19937_64& random) { return random() % 3 == 0 ? Tail::other : Tail::counted_launch; }

/// A call queries the state of its stream once. If the same stream was looked at immediately before, that result is
/// used, but only for the next call.
TEST(CallOrder, WhatALookHasFoundIsForTheNextCallAlone) {
  Calls calls;
  const Stream first = calls.stream(), second = calls.stream();
  const auto looks_of = [&](const std::function<void()>& work) {
    const int before = calls.driver().looks();
    work();
    return calls.driver().looks() - before;
  };
  const auto look = [&](Stream stream) { EXPECT_EQ(calls.order().look_at(stream).value(), false); };
  const auto call = [&](Stream stream) { calls.call(stream, Tail::counted_launch); };
  EXPECT_EQ(looks_of([&] { look(first), call(first); }), 1);
  EXPECT_EQ(looks_of([&] { call(first); }), 1);
  EXPECT_EQ(looks_of([&] { look(first), call(second); }), 2);
  EXPECT_EQ(looks_of([&] { call(first); }), 1) << "that look is over";
}

TEST(CallOrder, CallsRunOneAfterAnother) {
  for (const bool one_queue : {false, true}) {
    Calls calls(one_queue ? 2 : 1, one_queue);
    std::mt19937_64 random(7);
    std::vector<Stream> streams;
    for (int i = 0; i < 5; ++i) streams.push_back(calls.stream());
    for (int i = 0; i < 500; ++i)
      calls.call(streams[random() % streams.size()], random_tail(random),
                 static_cast<std::uint32_t>(random() % 128 + 1));
    calls.finish();
    EXPECT_EQ(calls.ended(), calls.calls());
  }
}

/// Each call has its own stream, which is destroyed after the call has been enqueued.
TEST(CallOrder, StreamsMayBeDestroyedAfterTheirCalls) {
  Calls calls;
  std::mt19937_64 random(3);
  for (int i = 0; i < 100; ++i) {
    const Stream stream = calls.stream();
    calls.call(stream, random_tail(random));
    calls.forget(stream);
  }
  calls.finish();
  EXPECT_EQ(calls.ended(), calls.calls());
}

TEST(CallOrder, LaunchesOfOneStreamNeedNothingBetweenThem) {
  Calls calls;
  const Stream first = calls.stream(), second = calls.stream();
  calls.call(first, Tail::counted_launch);
  const int before = calls.driver().commands();
  for (int i = 0; i < 10; ++i) calls.call(first, Tail::counted_launch);
  EXPECT_EQ(calls.driver().commands(), before);
  calls.call(second, Tail::counted_launch);
  EXPECT_EQ(calls.driver().commands(), before + 1);
  calls.call(second, Tail::other);
  EXPECT_EQ(calls.driver().commands(), before + 2);
}

TEST(CallOrder, CountsWrap) {
  Calls calls;
  const std::array streams{calls.stream(), calls.stream()};
  for (std::size_t i = 0; i < 50; ++i) calls.call(streams[i % 2], Tail::counted_launch, 0x7000'0000);
  calls.finish();
  EXPECT_EQ(calls.ended(), calls.calls());
  EXPECT_EQ(ask(calls), true);
}

/// Launch counts can be read while work is pending: whether launches have ended is told by how many of their blocks
/// have.
TEST(CallOrder, WhatTheGpuCountsCanBeAsked) {
  Calls calls;
  calls.counts() = {.collectives = 7, .begun = 10, .finished = 4};
  const auto ask_counts = [&] {
    std::optional<kernels::LaunchCounts> counts;
    for (int i = 0; i < 10'000 && !counts; ++i) counts = calls.order().read_counts();
    return counts.value_or(kernels::LaunchCounts{});
  };
  EXPECT_EQ(ask_counts().collectives, 7u);
  EXPECT_FALSE(ask_counts().have_ended());
  calls.counts().finished = 10;
  EXPECT_TRUE(ask_counts().have_ended());
}

/// Captured calls change no counts, however often their graph is launched. Calls outside still wait for one another.
TEST(CallOrder, CapturedCallsDoNotCount) {
  Calls calls;
  const Stream first = calls.stream(), recorded = calls.stream(), other = calls.stream();
  std::atomic<int> replayed = 0;
  calls.call(first, Tail::counted_launch, 3, [] { std::this_thread::sleep_for(5ms); });
  calls.driver().begin_capture();
  for (const Stream stream : {recorded, other}) {
    ASSERT_TRUE(calls.order().begin(stream));
    EXPECT_EQ(calls.order().finished(), nullptr);
    calls.driver().run(stream, [&, is_second = stream == other] {
      EXPECT_EQ(replayed % 2, is_second ? 1 : 0);
      ++replayed;
    });
    calls.order().launched(5);
    ASSERT_TRUE(calls.order().end(stream, Tail::counted_launch));
  }
  calls.driver().end_capture();
  calls.call(other, Tail::counted_launch);
  calls.finish();
  EXPECT_EQ(calls.ended(), 2u);
  for (int i = 0; i < 2; ++i) {
    calls.driver().replay();
    calls.finish();
  }
  EXPECT_EQ(replayed, 4);
  EXPECT_EQ(calls.finished(), 6u);
  calls.call(first, Tail::counted_launch);
  calls.finish();
  EXPECT_EQ(calls.ended(), 3u);
  EXPECT_EQ(ask(calls), true);
}

/// Launches of graphs and calls outside of them run one after another, in the order in which they are made, on any
/// streams. This includes calls made before the first capture.
TEST(CallOrder, GraphsAndOtherCallsTakeTurns) {
  for (const Tail before : {Tail::counted_launch, Tail::other}) {
    Calls calls(before == Tail::other ? 5 : 4);
    std::mt19937_64 random(11);
    std::vector<Stream> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(calls.stream());
    calls.call(streams[0], before, 3, [] { std::this_thread::sleep_for(5ms); });
    calls.driver().begin_capture();
    for (const Stream stream : {streams[1], streams[2], streams[1]}) calls.record(stream);
    calls.driver().end_capture();
    for (int i = 0; i < 100; ++i) {
      if (random() % 3 == 0)
        calls.replay();
      else
        calls.call(streams[random() % streams.size()], random_tail(random));
    }
    EXPECT_NE(ask(calls), std::nullopt);
    calls.finish();
    EXPECT_EQ(calls.ended(), calls.calls());
    EXPECT_EQ(ask(calls), true);
  }
}

/// Each capture has its own order, even if calls alternate between captures, until it is one of many past captures.
TEST(CallOrder, CapturesMayTakeTurns) {
  Calls calls;
  const Stream first = calls.stream(), other = calls.stream();
  const auto commands_for = [&](std::uint64_t capture, Stream stream) {
    calls.driver().begin_capture(capture);
    const int before = calls.driver().commands();
    calls.record(stream);
    calls.driver().end_capture();
    return calls.driver().commands() - before;
  };
  constexpr int records = 2;  // one for other streams of the capture, one for what follows the graph
  EXPECT_EQ(commands_for(1, first), 1 + 1 + records) << "an event is made, and what came before the graph awaited";
  EXPECT_EQ(commands_for(2, other), 1 + 1 + records);
  EXPECT_EQ(commands_for(1, first), records) << "it comes behind its capture's last call anyway";
  EXPECT_EQ(commands_for(1, other), 1 + records) << "it waits for its capture's last call";
  EXPECT_EQ(commands_for(2, other), records);
  for (std::uint64_t capture = 3; capture < 40; ++capture) (void)commands_for(capture, first);
  EXPECT_EQ(commands_for(50, first), 1 + records) << "of an old capture the event is used again";
}

/// CUDA would pull the outside stream into the capture, or return an error.
TEST(CallOrder, NothingOrdersACaptureAndWhatIsOutsideOfIt) {
  Calls calls;
  const Stream captured = calls.stream();
  calls.driver().begin_capture();
  const Stream outside = calls.stream();
  const int before = calls.driver().commands();
  EXPECT_TRUE(calls.order().order(captured, outside));
  EXPECT_TRUE(calls.order().order(outside, captured));
  EXPECT_EQ(calls.driver().commands(), before);
  calls.driver().end_capture();
}

/// If the program orders graphs itself, neither graphs nor calls wait for one another. An event still marks the end of
/// a graph.
TEST(CallOrder, GraphsAreLeftAloneWhereTheProgramOrdersThem) {
  Calls calls(1, false, false);
  const Stream stream = calls.stream();
  calls.call(stream, Tail::counted_launch);
  calls.driver().begin_capture();
  const int before = calls.driver().commands();
  calls.record(stream);
  EXPECT_EQ(calls.driver().commands(), before + 3)
      << "an event and its record, for other streams of the capture, and a record for is_idle()";
  calls.driver().end_capture();
  calls.driver().finish(stream);
  EXPECT_EQ(ask(calls), true);
  std::atomic<bool> held = true;
  calls.driver().run(stream, [&] { held.wait(true); });
  calls.replay();
  EXPECT_EQ(ask(calls), false);
  held = false;
  held.notify_all();
  calls.driver().finish(stream);
  EXPECT_EQ(ask(calls), true);
  const int before_call = calls.driver().commands();
  calls.call(calls.stream(), Tail::counted_launch);
  EXPECT_EQ(calls.driver().commands(), before_call + 2)
      << "a stream, and the wait for the last call: not for the graph";
  calls.finish();
  EXPECT_EQ(ask(calls), true);
}

TEST(CallOrder, NobodyWaitsForALaunchThatFailed) {
  Calls calls;
  const Stream first = calls.stream(), second = calls.stream(), third = calls.stream();
  calls.call(first, Tail::counted_launch);
  ASSERT_TRUE(calls.order().begin(second));
  calls.call(third, Tail::counted_launch);
  calls.finish();
  EXPECT_EQ(calls.ended(), 2u);
}

TEST(CallOrder, TellsWhetherAllHasRun) {
  for (const Tail tail : {Tail::counted_launch, Tail::other}) {
    Calls calls;
    EXPECT_EQ(calls.order().is_idle(), true);
    const Stream stream = calls.stream();
    for (int i = 0; i < 3; ++i) {
      std::atomic<bool> held = true;
      calls.call(stream, tail, 3, [&] { held.wait(true); });
      EXPECT_EQ(ask(calls), false);
      held = false;
      held.notify_all();
      calls.finish();
      EXPECT_EQ(ask(calls), true);
    }
  }
}

TEST(CallOrder, DoesNotStallWhereTheWordCannotBeRead) {
  Calls calls;
  calls.call(calls.stream(), Tail::counted_launch);
  calls.finish();
  std::atomic<bool> held = true;
  const Stream busy = calls.reader().create_stream().value();
  calls.reader().run(busy, [&] { held.wait(true); });
  EXPECT_EQ(calls.order().is_idle(), std::nullopt);
  EXPECT_EQ(calls.order().is_idle(), std::nullopt) << "the first question's copy is still to come";
  held = false;
  held.notify_all();
  EXPECT_EQ(ask(calls), true);
}

/// A copy for a query that timed out still writes into memory that is released with the object, so destruction waits
/// for it.
TEST(CallOrder, EndsWithTheLastQuestionsCopy) {
  kernels::LaunchCounts counts{}, seen{};
  auto own_reader = std::make_unique<FakeStreams>(FakeStreams::Options{.one_queue = true});
  FakeStreams& reader = *own_reader;
  auto order = CallOrder::open(
      {std::make_unique<FakeStreams>(FakeStreams::Options{}), std::move(own_reader), &counts, &seen, true});
  ASSERT_TRUE(order);
  std::atomic<bool> held = true;
  const Stream busy = reader.create_stream().value();
  reader.run(busy, [&] { held.wait(true); });
  EXPECT_EQ((*order)->read_counts(), std::nullopt);
  std::atomic<bool> has_ended = false;
  const std::jthread ends([&] {
    order->reset();
    has_ended = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(has_ended);
  held = false;
  held.notify_all();
}

}  // namespace
}  // namespace strait::testing
