// The order in which kernels of several communicators start on a GPU. Streams are threads here.
#include "device/launch_order.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "support/fake_streams.hpp"

namespace strait::testing {
namespace {

using Stream = copy_engine::StreamDriver::Stream;
using Event = copy_engine::StreamDriver::Event;
using Line = LaunchOrder::Line;
constexpr std::uint32_t sms = 132;

/// A communicator with a stream of its own.
struct Member {
  explicit Member(int device = 0) {
    auto made = std::make_unique<FakeStreams>(FakeStreams::Options{.slow = false});
    driver = made.get();
    order = LaunchOrder::join(device, sms, std::move(made)).value();
    stream = driver->create_stream().value();
    side = driver->create_stream().value();
  }
  /// Launches a kernel that starts once all earlier work of the stream is done. Returns whether it records its start.
  bool launch(std::uint32_t blocks, Line line = Line::main) {
    bool records = false;
    const Stream on = line == Line::main ? stream : side;
    EXPECT_TRUE(order->launch(line, blocks, on, [&](Event event) -> Status {
      driver->run(on, [this] { ++*started; });
      records = event != nullptr;
      return records ? driver->record(event, on) : Status();
    }));
    return records;
  }
  /// Makes later launches start only once `gate` is open.
  void wait_for(const std::atomic<bool>& gate) {
    driver->run(stream, [&gate] {
      while (!gate) std::this_thread::yield();
    });
  }
  void expect_starts(int count) const {
    for (int i = 0; i < 10'000 && *started < count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(*started, count);
  }
  FakeStreams* driver = nullptr;
  std::unique_ptr<LaunchOrder> order;
  Stream stream = nullptr, side = nullptr;
  std::unique_ptr<std::atomic<int>> started = std::make_unique<std::atomic<int>>(0);
};

TEST(LaunchOrder, IsThatOfTheHostWhereKernelsDoNotFitSideBySide) {
  std::atomic<bool> gate{false};
  Member first, second;
  first.wait_for(gate);
  EXPECT_TRUE(first.launch(100));
  EXPECT_TRUE(second.launch(100));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(*second.started, 0);
  gate = true;
  for (const Member* each : {&first, &second}) each->expect_starts(1);
  for (Member* each : {&first, &second}) each->driver->finish(each->stream);
}

TEST(LaunchOrder, IsNoneWhereTheyFit) {
  std::atomic<bool> gate{false};
  Member first, second;
  first.wait_for(gate);
  first.launch(66);
  second.launch(66);
  second.expect_starts(1);
  EXPECT_EQ(*first.started, 0);
  // From now on they do not fit, and what was launched before counts.
  second.launch(67);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(*second.started, 1);
  gate = true;
  second.expect_starts(2);
  for (Member* each : {&first, &second}) each->driver->finish(each->stream);
}

/// What a communicator launches side by side is awaited on both streams, and awaits others on both.
TEST(LaunchOrder, HoldsForBothLinesOfACommunicator) {
  std::atomic<bool> gate{false}, side_gate{false};
  Member first, second;
  first.wait_for(gate);
  first.driver->run(first.side, [&side_gate] {
    while (!side_gate) std::this_thread::yield();
  });
  first.launch(40, Line::side);
  first.launch(40);
  second.launch(60);
  second.launch(8, Line::side);
  gate = true;
  first.expect_starts(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(*second.started, 0) << "the side line has not started";
  side_gate = true;
  first.expect_starts(2);
  second.expect_starts(2);
  for (Member* each : {&first, &second})
    for (Stream stream : {each->stream, each->side}) each->driver->finish(stream);
}

TEST(LaunchOrder, AwaitsEachLaunchOnce) {
  Member first, second, third;
  first.launch(100);
  second.launch(100);
  const int commands = second.driver->commands();
  second.launch(100);
  EXPECT_EQ(second.driver->commands(), commands + 1) << "the record of its own start only";
  first.launch(100);
  second.launch(100);
  EXPECT_EQ(second.driver->commands(), commands + 3) << "and a wait for what the first has launched since";
  third.launch(8);
  EXPECT_EQ(third.driver->commands(), 7) << "two events, two streams, two waits and a record";
  for (Member* each : {&first, &second, &third}) each->driver->finish(each->stream);
}

/// A large call counts until it must have ended: when the second launch after it has started.
TEST(LaunchOrder, IsNoneLongAfterALargeCall) {
  for (const int small : {1, 2}) {
    std::atomic<bool> gate{false};
    Member first, second, third;
    first.launch(100);
    for (int i = 0; i < small; ++i) first.launch(8);
    second.launch(40);
    second.expect_starts(1);
    first.wait_for(gate);
    first.launch(8);
    second.launch(40);
    if (small == 2) second.expect_starts(2);
    third.launch(8);  // has awaited nothing yet
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(*second.started, small == 2 ? 2 : 1);
    EXPECT_EQ(*third.started, 0);
    gate = true;
    second.expect_starts(2);
    third.expect_starts(1);
    for (Member* each : {&first, &second, &third}) each->driver->finish(each->stream);
  }
}

/// A launch may begin while the previous one of its line still runs.
TEST(LaunchOrder, CountsTheLaunchBeforeOnTheSameLine) {
  std::atomic<bool> gate{false};
  Member first, second;
  first.wait_for(gate);
  first.launch(40);
  second.launch(92);
  second.launch(93);
  second.launch(8);  // beside 93
  second.launch(92);
  second.launch(92);
  second.expect_starts(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(*second.started, 1);
  first.launch(41);
  const int commands = second.driver->commands();
  second.launch(8);  // beside 92
  EXPECT_EQ(second.driver->commands(), commands + 2) << "a wait and a record";
  first.launch(8);
  second.launch(8);
  EXPECT_EQ(second.driver->commands(), commands + 3) << "a record only";
  gate = true;
  second.expect_starts(7);
  for (Member* each : {&first, &second}) each->driver->finish(each->stream);
}

TEST(LaunchOrder, CostsNothingWithoutOthersOnTheGpu) {
  Member alone, elsewhere(1);
  EXPECT_FALSE(alone.launch(132));
  EXPECT_FALSE(elsewhere.launch(132));
  {
    Member other;
    EXPECT_TRUE(alone.launch(132));
    EXPECT_TRUE(other.launch(132));
    other.driver->finish(other.stream);
  }
  EXPECT_FALSE(alone.launch(132));
  for (Member* each : {&alone, &elsewhere}) each->driver->finish(each->stream);
}

}  // namespace
}  // namespace strait::testing
