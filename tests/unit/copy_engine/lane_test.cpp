// Which stream a lane uses while other streams are being captured.
#include "executor/copy_engine/lane.hpp"

#include <gtest/gtest.h>

#include <map>

#include "support/fake_streams.hpp"

namespace strait::testing {
namespace {

/// A driver with CUDA's rules for captures: a stream that waits for an event of a capture joins that capture. A stream
/// that belongs to another capture must not wait for it, and a stream in a capture must not wait for an event from
/// outside.
class Captures final : public copy_engine::StreamDriver {
 public:
  Result<Stream> create_stream() override { return fakes_.create_stream(); }
  void destroy_stream(Stream stream) override {
    capture_of_.erase(stream);
    ++destroyed_;
  }
  Result<Event> create_event() override { return fakes_.create_event(); }
  void destroy_event(Event event) override { fakes_.destroy_event(event); }
  Result<copy_engine::StreamState> look_at(Stream stream) override {
    return copy_engine::StreamState{reinterpret_cast<std::uintptr_t>(stream), capture_of_[stream]};
  }
  Status record(Event event, Stream stream) override {
    recorded_in_[event] = capture_of_[stream];
    return {};
  }
  Status wait(Stream stream, Event event) override {
    std::uint64_t& capture = capture_of_[stream];
    if (capture != 0 && capture != recorded_in_[event]) return fail(Code::cuda_error, "it would merge captures");
    capture = recorded_in_[event];
    return {};
  }
  Status wait_external(Stream, Event) override { return fail(Code::internal_error, "not asked for"); }
  Status record_external(Event, Stream, copy_engine::GraphEnd&) override {
    return fail(Code::internal_error, "not asked for");
  }
  Status copy(const copy_engine::RowCopy&, Stream) override { return {}; }
  Status operate(std::span<const copy_engine::MemoryOperation>, Stream) override { return {}; }
  bool is_idle(Stream stream) override { return stream != busy_; }
  std::optional<bool> has_passed(Event) override { return true; }

  void begin(Stream stream, std::uint64_t capture) { capture_of_[stream] = capture; }
  void end(std::uint64_t capture) {
    for (auto& [stream, of] : capture_of_)
      if (of == capture) of = 0;
  }
  Stream busy_ = nullptr;
  int destroyed_ = 0;

 private:
  FakeStreams fakes_{FakeStreams::Options{}};
  std::map<Stream, std::uint64_t> capture_of_;
  std::map<Event, std::uint64_t> recorded_in_;
};

class LaneTest : public ::testing::Test {
 protected:
  LaneTest() {
    EXPECT_TRUE(lane_.open(driver_));
    begun_ = *driver_.create_event();
    for (auto& user : users_) user = *driver_.create_stream();
  }
  /// Makes a call on one of the user's streams through the lane.
  void call(std::size_t user) {
    const Status called = [&]() -> Status {
      STRAIT_TRY(driver_.record(begun_, users_[user]));
      STRAIT_ASSIGN(const copy_engine::StreamState now, driver_.look_at(users_[user]));
      STRAIT_TRY(lane_.fork(driver_, begun_, now.capture_id));
      return lane_.join(driver_, users_[user]);
    }();
    EXPECT_TRUE(called) << called.error().message;
  }
  Captures driver_;
  copy_engine::Lane lane_;
  copy_engine::StreamDriver::Event begun_ = nullptr;
  std::array<copy_engine::StreamDriver::Stream, 3> users_{};
};

TEST_F(LaneTest, CallsBetweenThoseOfACaptureHaveAnotherStream) {
  const auto first = lane_.stream;
  call(0);
  driver_.begin(users_[1], 7);
  call(1);
  EXPECT_EQ(lane_.stream, first);
  call(0);
  EXPECT_NE(lane_.stream, first);
  call(1);
  EXPECT_EQ(lane_.stream, first) << "the capture goes on";
  driver_.begin(users_[2], 8);
  for (const std::size_t user : {2, 1, 0, 2, 0, 1}) call(user);
  EXPECT_EQ(lane_.others.size(), 2u) << "one for each capture, and one for the rest";
  driver_.end(7);
  driver_.end(8);
  for (const std::size_t user : {0, 1, 2}) call(user);
  EXPECT_EQ(lane_.others.size(), 2u);
}

TEST_F(LaneTest, AllItsStreamsAreWaitedForAndGivenBack) {
  driver_.begin(users_[1], 7);
  call(1);
  call(0);
  EXPECT_TRUE(lane_.is_idle(driver_));
  for (const auto stream : {lane_.stream, lane_.others.at(0)}) {
    driver_.busy_ = stream;
    EXPECT_FALSE(lane_.is_idle(driver_));
  }
  lane_.close(driver_);
  EXPECT_EQ(driver_.destroyed_, 2);
}

}  // namespace
}  // namespace strait::testing
