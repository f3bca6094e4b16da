// What a kernel that gave up has left behind does not reach peers before they know that it gave up.
#include "executor/copy_engine/gate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>

#include "machine.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using copy_engine::CopyCall;
using namespace std::chrono_literals;

struct Gated {
  std::unique_ptr<FakeStreams> own = std::make_unique<FakeStreams>(FakeStreams::Options{});
  FakeStreams* driver = own.get();
  std::uint32_t word = 0;
  copy_engine::Gate gate{std::move(own), &word};
  void shut() { std::atomic_ref<std::uint32_t>(word).store(1); }
};

TEST(Gate, HoldsWhatComesAfterAKernelThatGaveUp) {
  Gated gated;
  std::atomic<int> passed = 0;
  const copy_engine::StreamDriver::Stream stream = gated.driver->create_stream().value();
  const auto call = [&] {
    ASSERT_TRUE(gated.gate.wait_if_closed(stream));
    gated.driver->run(stream, [&] { ++passed; });
  };
  call();
  gated.driver->finish(stream);
  EXPECT_EQ(passed, 1);
  for (const int before : {1, 3}) {  // a second time, after the gate was opened
    gated.driver->run(stream, [&] { gated.shut(); });
    call();
    call();
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(passed, before);
    gated.gate.open();
    gated.driver->finish(stream);
    EXPECT_EQ(passed, before + 2);
  }
}

TEST(Gate, OfGraphsHoldsEachLaunch) {
  Gated gated;
  std::atomic<int> passed = 0;
  const copy_engine::StreamDriver::Stream stream = gated.driver->create_stream().value();
  gated.driver->begin_capture();
  ASSERT_TRUE(gated.gate.wait_if_closed(stream));
  gated.driver->run(stream, [&] { ++passed; });
  gated.driver->end_capture();
  gated.driver->replay();
  gated.driver->finish(stream);
  gated.driver->run(stream, [&] { gated.shut(); });
  gated.driver->replay();
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(passed, 1);
  gated.gate.open();
  gated.driver->finish(stream);
  EXPECT_EQ(passed, 2);
}

TEST(Gate, OfKernelsWithoutADeadlineIsNone) {
  copy_engine::Gate gate;
  EXPECT_TRUE(gate.wait_if_closed(nullptr));
  gate.open();
}

/// The peer calls late, and would end without an error, with data that is not a result.
TEST(Gate, APeerWaitsUntilTheFailureIsKnown) {
  constexpr std::size_t count = 100'000;
  Machine machine(2, 4 << 20);
  Bytes data(count, std::byte{0xa5}), output(2 * count), other(count, std::byte{2}), others(2 * count);
  Rank rank(machine, 0, small_options(), {}), peer(machine, 1, small_options(), {});
  std::uint32_t word = 0;
  auto driver = std::make_unique<FakeStreams>(FakeStreams::Options{});
  copy_engine::Gate gate(std::move(driver), &word);
  const auto call = [&](Bytes& send, Bytes& receive) {
    return CopyCall{.collective = Collective::all_gather,
                    .type = DataType::int8,
                    .count = count,
                    .send = send.data(),
                    .receive = receive.data()};
  };
  rank.driver->run(rank.stream, [&] {
    std::atomic_ref<std::uint32_t>(word).store(1);
  });  // a kernel that gave up and left its data unchanged
  ASSERT_TRUE(gate.wait_if_closed(rank.stream));
  ASSERT_TRUE(rank.copies->enqueue(call(data, output), rank.stream));
  ASSERT_TRUE(peer.copies->enqueue(call(other, others), peer.stream));
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(peer.driver->is_idle(peer.stream));
  gate.open();  // as when all ranks know of the failure; that other waits end too is tested in abort_test.cpp
  rank.driver->finish(rank.stream);
  peer.driver->finish(peer.stream);
  EXPECT_EQ(std::memcmp(others.data(), data.data(), count), 0);
}

}  // namespace
}  // namespace strait::testing
