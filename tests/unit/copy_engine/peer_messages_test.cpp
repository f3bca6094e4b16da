// Messages that are copied into the memory of peers: random groups, by themselves and between collectives, with streams
// that are late, and with ranks that post as a group what others post one by one. (What messages wait for is tested in
// peer_messages_abort_test.cpp.)
#include <gtest/gtest.h>

#include <set>

#include "late.hpp"
#include "message_groups.hpp"

namespace strait::testing {
namespace {

using copy_engine::PeerMessages;
using namespace std::chrono_literals;

struct Setting {
  std::uint32_t ranks;
  bool one_queue = false;
  bool slow = true;
  bool stragglers = false;
};

/// Runs groups that are enqueued at once, with collectives of all ranks between them.
void run_groups(const Setting& setting, std::uint64_t seed, std::size_t number_of_groups) {
  const std::uint32_t ranks = setting.ranks;
  Peers peers(ranks);
  std::vector<Messages> groups;
  std::vector<Case> cases;
  Random random(seed);
  while (groups.size() < number_of_groups) groups.push_back(random_messages(random, ranks, message_lengths()));
  for (std::uint64_t next = seed; cases.size() < number_of_groups;)
    if (Case c = make_case(next = mix(next), ranks, 20'000); is_supported(c)) cases.push_back(std::move(c));
  as_threads(ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = seed + number, .one_queue = setting.one_queue, .slow = setting.slow});
    if (setting.stragglers) rank.driver->set_hook(stragglers(seed * ranks + number));
    std::vector<std::unique_ptr<OwnMessages>> messages;
    std::vector<std::unique_ptr<Buffers>> buffers;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      messages.push_back(std::make_unique<OwnMessages>(groups[i], number, seed + i));
      ASSERT_TRUE(rank.enqueue(messages.back()->ends()));
      if (mix(seed + i) % 2 == 0) continue;
      buffers.push_back(std::make_unique<Buffers>(cases[i], number, ranks));
      ASSERT_TRUE(rank.enqueue(buffers.back()->call()));
    }
    rank.driver->finish(rank.stream);
    EXPECT_FALSE(rank.copies->wait());
    EXPECT_FALSE(rank.messages->wait());
    for (const auto& own : messages) own->check();
    for (const auto& own : buffers) own->check();
  });
}

TEST(PeerMessages, ArriveWhateverTheGroup) {
  for (std::uint32_t ranks = 2; ranks <= 6; ++ranks)
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, seed " + std::to_string(seed));
      run_groups({.ranks = ranks}, mix(seed * 8 + ranks), 5);
    }
}

TEST(PeerMessages, OfGroupsNeedOnlyOneHardwareQueue) {
  for (std::uint32_t ranks = 2; ranks <= 6; ++ranks)
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, seed " + std::to_string(seed));
      run_groups({.ranks = ranks, .one_queue = true, .slow = seed % 2 == 0}, mix(seed * 16 + ranks), 6);
    }
}

TEST(PeerMessages, KeepTheirOrderWhateverIsLate) {
  for (const std::uint32_t ranks : {2u, 3u, 5u})
    for (const bool one_queue : {false, true}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks" + (one_queue ? ", one queue" : ""));
      run_groups({.ranks = ranks, .one_queue = one_queue, .slow = false, .stragglers = true}, 91 + ranks, 14);
    }
}

/// Chunks are smaller than slots here, and their length differs from message to message.
TEST(PeerMessages, OfAnyChunksFollowOneAnother) {
  constexpr std::size_t mb = std::size_t{1} << 20, window = 12 * mb;
  const Messages all{{0, 1, 1000},        {1, 0, 13 * mb + 1}, {0, 1, 11 * mb}, {0, 1, 5 * mb - 3},
                     {0, 1, 9 * mb + 17}, {1, 0, 3 * mb},      {1, 1, 2 * mb},  {0, 1, 2 * mb + 1}};
  Peers peers(2, window);
  as_threads(2, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = number});
    rank.driver->set_hook(stragglers(number));
    OwnMessages group(all, number, 1), again(all, number, 2);
    ASSERT_TRUE(rank.enqueue(group.ends()));
    ASSERT_TRUE(rank.enqueue(again.ends()));
    rank.driver->finish(rank.stream);
    group.check();
    again.check();
  });
}

/// Some ranks post as a group what others post one by one, in an order in which all ranks could post them. With two
/// ranks, messages whose `lengths` fit into windows need no hardware queues of their own (`one_queue`).
void run_one_by_one(std::uint32_t ranks, bool one_queue, const std::vector<std::size_t>& lengths, std::uint64_t seed) {
  Random random(seed);
  Messages all = random_messages(random, ranks, lengths);
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  std::erase_if(all, [&](const Sent& m) { return m.from == m.to || !seen.insert({m.from, m.to}).second; });
  const std::uint64_t groups = random();
  Peers peers(ranks);
  as_threads(ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = seed + number, .one_queue = one_queue, .slow = false});
    std::vector<std::unique_ptr<OwnMessages>> own;
    std::vector<Messages> parts;
    if ((groups >> number & 1) != 0)
      parts.push_back(all);
    else
      for (const Sent& message : all) parts.push_back({message});
    for (const Messages& part : parts) {
      own.push_back(std::make_unique<OwnMessages>(part, number, seed));
      ASSERT_TRUE(rank.enqueue(own.back()->ends()));
    }
    rank.driver->finish(rank.stream);
  });
}

TEST(PeerMessages, GroupsMeetWhatIsPostedOneByOne) {
  const std::vector<std::size_t> long_ones{peer_window_bytes + 1, 100'000, message_slot};
  const std::vector<std::size_t> fitting{1, message_slot + 1, peer_window_bytes};
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_one_by_one(2 + static_cast<std::uint32_t>(seed % 5), false, long_ones, seed);
    run_one_by_one(2, true, fitting, seed);
  }
}

/// Ranks 0 and 1 do not wait for ranks that are late: rank 3 posts its only message, to rank 2, after two ranks have
/// ended.
TEST(PeerMessages, WaitForNobodyElse) {
  const Messages pairs{{0, 1, 100'000}, {1, 0, 100'000}, {0, 2, 100'000}}, late{{3, 2, 100'000}};
  Peers peers(4);
  std::atomic<int> done = 0;
  as_threads(4, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = number});
    Messages own = pairs;
    if (number >= 2) own.insert(own.end(), late.begin(), late.end());
    if (number == 3)
      while (done < 2) std::this_thread::sleep_for(1ms);
    OwnMessages messages(own, number, 4);
    ASSERT_TRUE(rank.enqueue(messages.ends()));
    rank.driver->finish(rank.stream);
    ++done;
    messages.check();
  });
}

/// Kernels that wait for the peers' kernels, as those of short messages do, and share a hardware queue with all
/// streams.
TEST(PeerMessages, KernelsBesideThemGoFirst) {
  constexpr std::uint32_t ranks = 3;
  Peers peers(ranks);
  std::vector<Messages> groups;
  Random random(5);
  for (int i = 0; i < 6; ++i) groups.push_back(random_messages(random, ranks, message_lengths()));
  std::atomic<std::uint32_t> kernels = 0;
  as_threads(ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = number, .one_queue = true});
    std::vector<std::unique_ptr<OwnMessages>> own;
    for (std::uint32_t i = 0; i < groups.size(); ++i) {
      own.push_back(std::make_unique<OwnMessages>(groups[i], number, i));
      const auto beside = [&, i] {
        rank.driver->launch(
            rank.stream, [&] { ++kernels; },
            [&, i] {
              const auto give_up = std::chrono::steady_clock::now() + 30s;
              while (kernels < ranks * (i + 1) && std::chrono::steady_clock::now() < give_up)
                std::this_thread::sleep_for(20us);
              EXPECT_GE(kernels, ranks * (i + 1));
            });
        return Status();
      };
      ASSERT_TRUE(rank.messages->enqueue(own.back()->ends(), rank.stream, beside));
    }
    rank.driver->finish(rank.stream);
    for (const auto& each : own) each->check();
  });
  EXPECT_EQ(kernels, ranks * groups.size());
}

/// The values that words take are constants of a message, so a captured message can be sent repeatedly, and its peer
/// need not capture its side.
TEST(PeerMessages, CapturedGroupsAreReplayed) {
  for (const std::uint32_t ranks : {2u, 3u, 4u}) {
    SCOPED_TRACE("ranks " + std::to_string(ranks));
    Peers peers(ranks);
    Random random(ranks);
    const Messages all = random_messages(random, ranks, message_lengths());
    as_threads(ranks, [&](std::uint32_t number) {
      PeerRank rank(peers, number, {.seed = number});
      rank.driver->set_hook(stragglers(number));
      OwnMessages own(all, number, 1);
      ASSERT_TRUE(rank.enqueue(own.ends()));  // creates the streams, so that the capture need not
      rank.driver->finish(rank.stream);
      own.check();
      rank.driver->begin_capture();
      if (number != 0) {
        ASSERT_TRUE(rank.enqueue(own.ends()));
      }
      rank.driver->end_capture();
      EXPECT_TRUE(rank.driver->is_idle(rank.stream));
      for (int round = 0; round < 6; ++round) {
        own.wipe();
        if (number == 0 || round % 3 == 2)
          ASSERT_TRUE(rank.enqueue(own.ends()));
        else
          rank.driver->replay();
        rank.driver->finish(rank.stream);
        own.check();
      }
    });
  }
}

TEST(PeerMessages, WhatIsNotSupportedIsRefused) {
  Peers peers(2);
  Bytes data(64);
  PeerRank rank(peers, 0, {});
  const PeerMessages& messages = *rank.messages;
  EXPECT_FALSE(messages.supports(0));
  EXPECT_TRUE(messages.supports(1));
  EXPECT_TRUE(messages.supports(PeerMessages::most_chunks * message_slot));
  EXPECT_FALSE(messages.supports(PeerMessages::most_chunks * message_slot + 1));
  const copy_engine::Message good{.sends = true, .peer = 1, .data = data.data(), .bytes = data.size(), .hash = 1};
  copy_engine::Message none = good, too_long = good, nobody = good;
  none.bytes = 0;
  too_long.bytes = PeerMessages::most_chunks * message_slot + 1;
  nobody.peer = 2;
  for (const copy_engine::Message& refused : {none, too_long, nobody})
    EXPECT_EQ(rank.enqueue(std::span(&refused, 1)).error().code, Code::unsupported);
  copy_engine::Message alone = good;
  alone.peer = 0;
  EXPECT_EQ(rank.enqueue(std::span(&alone, 1)).error().code, Code::invalid_usage);
  const auto open = [&](std::uint32_t number, std::size_t window_bytes) {
    return PeerMessages::open({.driver = std::make_shared<FakeStreams>(FakeStreams::Options{}),
                               .rank = number,
                               .ranks = 2,
                               .window_bytes = window_bytes,
                               .has_failed = [] { return false; }});
  };
  EXPECT_TRUE(open(1, PeerMessages::depth * 4096));
  EXPECT_EQ(open(1, PeerMessages::depth * 4096 - 1).error().code, Code::invalid_argument);
  EXPECT_EQ(open(2, peer_window_bytes).error().code, Code::invalid_argument);
}

}  // namespace
}  // namespace strait::testing
