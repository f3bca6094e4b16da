// The words of a Mailbox between a kernel and the host: the abort word is seen, and an event arrives after the words
// that describe it.
#include "gpu/litmus_mailbox.cuh"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "gpu/litmus_memory.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Event = Mailbox::Event;

class LitmusMailbox : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "needs a GPU";
    memory_.emplace_back(-1, sizeof(Mailbox));
    memory_.back().clear();
    LITMUS_CUDA(cudaSetDevice(0));
    LITMUS_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Mailbox& mailbox() { return *memory_.back().as<Mailbox>(); }
  /// Writes the abort word, as the attendant thread of a rank does.
  void raise(std::uint32_t value) { std::atomic_ref(mailbox().abort) = value; }
  /// Waits for an event. Returns false if it did not come within two seconds.
  bool await(Event event) {
    const std::atomic_ref word(mailbox().event);
    const auto began = Clock::now();
    for (std::uint32_t polls = 0; word.load(std::memory_order_acquire) != event; ++polls)
      if (polls % 1024 == 0 && Clock::now() - began > std::chrono::seconds(2)) return false;
    return true;
  }

  /// Returns how many of `rounds` events arrived before the words that describe them. Stops at one that did not arrive.
  std::uint32_t early_events(void (*kernel)(Mailbox*, std::uint32_t), std::uint32_t rounds, const char* what) {
    memory_.back().clear();
    const auto began = Clock::now();
    kernel<<<1, 1, 0, stream_>>>(&mailbox(), rounds);
    std::uint32_t early = 0, round = 1;
    for (; round <= rounds; ++round) {
      raise(round);
      if (!await(static_cast<Event>(round))) break;
      const bool has_come = std::atomic_ref(mailbox().peer) == round * 3 &&
                            std::atomic_ref(mailbox().lane) == round * 5 &&
                            std::atomic_ref(mailbox().sends) == round * 7;
      early += has_come ? 0 : 1;
    }
    EXPECT_GT(round, rounds) << what << ": the kernel did not answer";
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    std::printf("[  litmus  ] %-34s %9u events, %u before what they tell of; %.1f s\n", what, rounds, early,
                std::chrono::duration<double>(Clock::now() - began).count());
    return early;
  }

  std::vector<LitmusMemory> memory_;
  cudaStream_t stream_ = nullptr;
};

TEST_F(LitmusMailbox, EventsComeAfterWhatTheyTell) {
  EXPECT_EQ(early_events(answer<Telling::as_poll_monitor_does>, 1'000'000, "events"), 0u);
}
TEST_F(LitmusMailbox, ControlEventFirst) {
  EXPECT_GT(early_events(answer<Telling::event_first>, 10'000, "events first (control)"), 0u);
}
TEST_F(LitmusMailbox, ControlWithoutFence) {
  early_events(answer<Telling::without_fence>, 100'000, "events without the fence (control)");
}

TEST_F(LitmusMailbox, WaitingKernelsSeeTheAbortWord) {
  constexpr std::uint32_t rounds = 20'000;
  kernels::Ring ring{};
  ring.mailbox = &mailbox();
  ring.slow_ns = kernels::never_slow_ns;
  for (std::uint32_t rank = 0; rank < kernels::max_ranks; ++rank) ring.members[rank] = static_cast<std::uint8_t>(rank);
  wait_in_vain<<<1, 1, 0, stream_>>>(ring, rounds);
  double longest_us = 0;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const auto pause = std::chrono::microseconds(mix(round) % 50);
    for (const auto began = Clock::now(); Clock::now() - began < pause;) continue;
    const auto began = Clock::now();
    raise(1);
    ASSERT_TRUE(await(Event::aborted)) << "round " << round;
    longest_us = std::max(longest_us, std::chrono::duration<double, std::micro>(Clock::now() - began).count());
    ASSERT_EQ(mailbox().peer, round % kernels::max_ranks);
    ASSERT_EQ(mailbox().lane, round);
    ASSERT_EQ(mailbox().sends, round % 2);
    raise(0);
    ASSERT_TRUE(await(Event::none)) << "round " << round;  // otherwise it might not see that the word was lowered
  }
  LITMUS_CUDA(cudaStreamSynchronize(stream_));
  std::printf("[  litmus  ] %-34s %9u times, after %.0f us at most\n", "aborted waits", rounds, longest_us);
  EXPECT_LT(longest_us, 1e6);
}

}  // namespace
}  // namespace strait::testing
