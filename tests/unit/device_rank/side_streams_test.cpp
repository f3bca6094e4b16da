// Work on streams beside the user's stream. Streams are threads here.
#include "device/side_streams.hpp"

#include <gtest/gtest.h>

#include <array>

#include "support/fake_streams.hpp"

namespace strait::testing {
namespace {

using Stream = SideStreams::Stream;
using namespace std::chrono_literals;

class SideStreamsTest : public ::testing::Test {
 protected:
  SideStreamsTest() {
    auto driver = std::make_unique<FakeStreams>(FakeStreams::Options{.seed = 1});
    driver_ = driver.get();
    side_ = SideStreams::open(std::move(driver)).value();
  }
  Stream fork(Stream stream) { return side_->fork(stream).value(); }
  static void await(const std::atomic<int>& word, int value) {
    const auto give_up = std::chrono::steady_clock::now() + 20s;
    while (word != value && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(10us);
    EXPECT_EQ(word, value);
  }
  /// Enqueues two pieces of work that wait for each other, one on a side stream, with one piece before and one after
  /// them.
  void give(Stream stream) {
    driver_->run(stream, [this] {
      std::this_thread::sleep_for(2ms);
      EXPECT_EQ(done_ % 4, 0);
      ++done_;
    });
    const Stream beside = fork(stream);
    EXPECT_NE(beside, stream);
    for (const Stream on : std::array{beside, stream})
      driver_->run(on, [this] {
        EXPECT_GE(done_ % 4, 1);
        const int met = ++met_;
        await(met_, met + met % 2);
        ++done_;
      });
    ASSERT_TRUE(side_->join(stream));
    driver_->run(stream, [this] {
      EXPECT_EQ(done_ % 4, 3);
      ++done_;
    });
  }

  FakeStreams* driver_ = nullptr;
  std::unique_ptr<SideStreams> side_;
  std::atomic<int> done_ = 0, met_ = 0;
};

TEST_F(SideStreamsTest, RunBesideAStreamBetweenWhatIsBeforeAndAfter) {
  const Stream stream = driver_->create_stream().value();
  for (int i = 0; i < 20; ++i) give(stream);
  driver_->finish(stream);
  EXPECT_EQ(done_, 80);
}

TEST_F(SideStreamsTest, AreCapturedWithIt) {
  const Stream stream = driver_->create_stream().value();
  driver_->begin_capture();
  for (int i = 0; i < 2; ++i) give(stream);
  driver_->end_capture();
  driver_->finish(stream);
  EXPECT_EQ(done_, 0);
  for (int i = 1; i <= 3; ++i) {
    driver_->replay();
    driver_->finish(stream);
    EXPECT_EQ(done_, 8 * i);
  }
}

TEST_F(SideStreamsTest, AreMadeOnce) {
  const Stream stream = driver_->create_stream().value(), other = driver_->create_stream().value();
  const Stream beside = fork(stream);
  constexpr int record_and_wait = 2;
  const int before = driver_->commands();
  EXPECT_EQ(fork(other), beside);
  driver_->begin_capture();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(fork(stream), beside);
  driver_->end_capture();
  EXPECT_EQ(driver_->commands(), before + 3 * record_and_wait);
}

/// A call outside of a capture runs now, so it must not get a side stream that belongs to the capture.
TEST_F(SideStreamsTest, OfACaptureAreLeftToIt) {
  const Stream captured = driver_->create_stream().value();
  driver_->begin_capture();
  const Stream in_capture = fork(captured), stream = driver_->create_stream().value();
  give(stream);
  EXPECT_EQ(fork(captured), in_capture);
  driver_->finish(stream);
  EXPECT_EQ(done_, 4);
  driver_->end_capture();
}

/// If an error has invalidated a capture, CUDA reports only that about its streams until the user ends the capture,
/// too.
TEST_F(SideStreamsTest, OfACaptureThatAnErrorHasEndedAreLeftToIt) {
  const Stream captured = driver_->create_stream().value();
  driver_->begin_capture();
  const Stream in_capture = fork(captured), stream = driver_->create_stream().value();
  driver_->invalidate_capture();
  for (int i = 0; i < 2; ++i) give(stream);
  EXPECT_NE(fork(stream), in_capture);
  driver_->finish(stream);
  EXPECT_EQ(done_, 8);
  driver_->end_capture();
  give(captured);
  driver_->finish(captured);
  EXPECT_EQ(done_, 12);
}

}  // namespace
}  // namespace strait::testing
