// The probe of peers' memory, on the CPU. It runs when a communicator has only arenas and a mailbox.
#include "support/emulated_gpu.hpp"
//
#include "kernels/probe.cuh"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

namespace strait::kernels {
namespace {

constexpr std::uint32_t ranks = 3;

class Probe : public ::testing::Test {
 protected:
  /// Returns the mask of unreached ranks, as launch_probe() does.
  std::uint32_t unreached(std::uint32_t rank, std::chrono::milliseconds timeout, std::uint32_t attempt = 0) {
    Ring ring{};
    for (std::uint32_t each = 0; each < ranks; ++each) {
      ring.arenas[each] = reinterpret_cast<std::byte*>(arenas_[each].data());
      ring.members[each] = static_cast<std::uint8_t>(each);
    }
    ring.mailbox = &mailboxes_[rank];
    ring.rank = rank;
    ring.ranks = ranks;
    ring.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
    ring.slow_ns = never_slow_ns;
    std::uint32_t unreached = 0;
    testing::run_threads(warp_threads, 1, 0, rank + 1, [&] {
      if (!reaches(ring, attempt, threadIdx.x)) unreached |= 1u << threadIdx.x;
    });
    mailboxes_[rank].unreached = unreached;
    return take_unreached(mailboxes_[rank]);
  }

  std::array<Mailbox, ranks> mailboxes_{};
  std::array<std::vector<std::uint64_t>, ranks> arenas_ = [] {
    std::array<std::vector<std::uint64_t>, ranks> arenas;
    arenas.fill(std::vector<std::uint64_t>(flags_offset_bytes / sizeof(std::uint64_t) + ranks));
    return arenas;
  }();
};

/// The delay is longer than many intervals at which the mailbox is polled.
TEST_F(Probe, WaitsForALateRank) {
  std::array<std::uint32_t, ranks> missing;
  missing.fill(~0u);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        missing[rank] = unreached(rank, std::chrono::seconds(60));
      });
  }
  EXPECT_EQ(missing, (std::array<std::uint32_t, ranks>{}));
}

/// A rank whose peers have ended too early must not take their words of then for those of a second attempt.
TEST_F(Probe, TakesNothingFromAnEarlierAttempt) {
  const std::chrono::milliseconds briefly(100);
  for (const std::uint32_t rank : {0u, 1u, 2u}) unreached(rank, briefly);
  EXPECT_EQ(unreached(2, briefly), 0u);  // the others' words are there by now
  EXPECT_EQ(unreached(2, briefly, 1), 0b011u);
}

/// Otherwise the communicator, which then uses host memory, would take the probe's timeout for one of its own.
TEST_F(Probe, NamesWhomItDoesNotReachAndLeavesNothing) {
  EXPECT_EQ(unreached(1, std::chrono::milliseconds(200)), 0b101u);
  const Mailbox& mailbox = mailboxes_[1];
  EXPECT_EQ(mailbox.event, Mailbox::Event::none);
  EXPECT_EQ(mailbox.timed_out, 0u);
  EXPECT_EQ(mailbox.holds_copies, 0u);
  EXPECT_EQ(mailbox.unreached, 0u);
}

}  // namespace
}  // namespace strait::kernels
