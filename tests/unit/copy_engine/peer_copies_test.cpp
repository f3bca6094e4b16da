// Copies into the memory of peers, with the kernel that adds on the CPU: every collective, type and operation, compared
// bit by bit, and calls that follow one another. (What such calls wait for is tested in peer_meetings_test.cpp.)
#include <gtest/gtest.h>

#include <thread>

#include "peers.hpp"

namespace strait::testing {
namespace {

using copy_engine::PeerCopies;

struct Setting {
  std::uint32_t ranks;
  bool one_queue = false;
  bool slow = true;
  std::size_t most_bytes = 150'000;
  std::uint32_t blocks = 2;
};

/// Runs groups of calls. The calls of a group are enqueued at once, and only the last is waited for.
void run_cases(const Setting& setting, std::uint64_t seed, int groups) {
  constexpr std::size_t calls_in_a_group = 4;
  Peers peers(setting.ranks);
  std::vector<std::vector<Case>> cases(static_cast<std::size_t>(groups));
  for (auto& group : cases)
    while (group.size() < calls_in_a_group)
      if (Case c = make_case(seed = mix(seed), setting.ranks, setting.most_bytes); is_supported(c))
        group.push_back(std::move(c));
  as_threads(setting.ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = seed + number, .one_queue = setting.one_queue, .slow = setting.slow},
                  setting.blocks);
    for (const auto& group : cases) {
      std::vector<std::unique_ptr<Buffers>> buffers;
      for (const Case& c : group) {
        buffers.push_back(std::make_unique<Buffers>(c, number, setting.ranks));
        const Status done = rank.enqueue(buffers.back()->call());
        ASSERT_TRUE(done) << done.error().message;
      }
      rank.driver->finish(rank.stream);
      EXPECT_FALSE(rank.copies->wait());
      for (const auto& buffer : buffers) buffer->check();
    }
  });
}

TEST(PeerCopies, HaveTheBitsOfAPlainLoop) {
  for (std::uint32_t ranks = 2; ranks <= 5; ++ranks) {
    SCOPED_TRACE("ranks " + std::to_string(ranks));
    run_cases({.ranks = ranks, .blocks = 1 + ranks % 3}, mix(ranks), 8);
  }
}

TEST(PeerCopies, NeedOnlyOneHardwareQueue) {
  for (const std::uint32_t ranks : {2u, 4u}) {
    SCOPED_TRACE("ranks " + std::to_string(ranks));
    run_cases({.ranks = ranks, .one_queue = true}, mix(ranks * 32), 6);
  }
}

TEST(PeerCopies, KeepTheirOrderAtFullSpeed) { run_cases({.ranks = 3, .slow = false, .most_bytes = 300'000}, 7, 8); }

/// A reduce that does not fit into the windows at once. Ranks other than the root have no output.
TEST(PeerCopies, ReduceInParts) {
  constexpr std::uint32_t ranks = 3;
  constexpr std::size_t in_a_part = peer_window_bytes / 2 / sizeof(std::uint16_t) * ranks;
  Peers peers(ranks);
  std::vector<Case> cases;
  for (const std::size_t count : {in_a_part, in_a_part + 1, 4 * in_a_part - 5})
    for (std::uint32_t root = 0; root < ranks; ++root) {
      Case c{.collective = Collective::reduce, .type = DataType::bfloat16, .root = root, .count = count};
      c.in_place = root == 1;
      for (std::uint32_t rank = 0; rank < ranks; ++rank)
        c.inputs.push_back(random_elements(c.type, count, count + rank));
      cases.push_back(std::move(c));
    }
  as_threads(ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = number, .slow = false});
    for (const Case& c : cases) {
      Buffers buffers(c, number, ranks);
      CopyCall call = buffers.call();
      if (number != c.root) call.receive = nullptr;
      ASSERT_TRUE(rank.enqueue(call));
      rank.driver->finish(rank.stream);
      buffers.check();
    }
  });
}

/// Reduces with every type and every operation that copy engines carry.
TEST(PeerCopies, ReduceEveryTypeAndOperation) {
  Peers peers(3);
  std::vector<Case> cases;
  for (int type = 0; type < data_type_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op) {
      Case c{.type = static_cast<DataType>(type),
             .op = static_cast<ReduceOp>(op),
             .count = 5001,
             .aligned = type % 2 == 0};
      if (!is_supported(c)) {
        EXPECT_EQ(c.op, ReduceOp::premul_sum);
        continue;
      }
      for (std::uint32_t rank = 0; rank < 3; ++rank)
        c.inputs.push_back(random_elements(c.type, c.count, rank + static_cast<unsigned>(type)));
      cases.push_back(std::move(c));
    }
  as_threads(3, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = number, .slow = false});
    for (const Case& c : cases) {
      Buffers buffers(c, number, 3);
      ASSERT_TRUE(rank.enqueue(buffers.call()));
      rank.driver->finish(rank.stream);
      buffers.check();
    }
  });
}

/// Whichever command the driver refuses, enqueue() returns an error, and nothing waits once the communicator has
/// failed.
TEST(PeerCopies, ADriverThatFailsHarmsNobody) {
  for (int commands = 1; commands < 60; commands += 3) {
    Peers peers(2);
    Bytes data(200'000);
    PeerRank rank(peers, 0, {.seed = 1});
    rank.driver->fail_after(commands);
    const Status done =
        rank.enqueue({.type = DataType::int8, .count = data.size(), .send = data.data(), .receive = data.data()});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::cuda_error);
    peers.fail();
    rank.copies.reset();
  }
}

TEST(PeerCopies, WhatIsNotSupportedIsRefused) {
  Peers peers(3);
  Bytes data(64);
  PeerRank rank(peers, 0, {});
  const CopyCall good{.count = 1, .send = data.data(), .receive = data.data()};
  for (const auto& change : std::vector<std::function<void(CopyCall&)>>{
           [](CopyCall& call) { call.count = 0; }, [](CopyCall& call) { call.op = ReduceOp::premul_sum; },
           [](CopyCall& call) { call.collective = Collective::send_recv; },
           [](CopyCall& call) { call.collective = Collective::barrier; }}) {
    CopyCall call = good;
    change(call);
    EXPECT_FALSE(rank.copies->supports(call));
    const Status refused = rank.enqueue(call);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::unsupported);
  }
  EXPECT_TRUE(rank.copies->supports(good));
  // There are two peers. A window holds four chunks of what its peer sends, or half as many if sums come back.
  CopyCall most = good;
  most.collective = Collective::all_gather;
  most.type = DataType::uint8;
  most.count = PeerCopies::most_chunks / 2 * (peer_window_bytes / 4);
  EXPECT_TRUE(rank.copies->supports(most));
  ++most.count;
  EXPECT_FALSE(rank.copies->supports(most)) << "one thread for several GPUs would wait for room";
  most.collective = Collective::reduce;
  most.count = PeerCopies::most_chunks / 2 * (peer_window_bytes / 8) * 3;
  EXPECT_TRUE(rank.copies->supports(most));
  ++most.count;
  EXPECT_FALSE(rank.copies->supports(most)) << "whose last part is cut like the others";
  auto none = rank.setup(std::make_unique<FakeStreams>(FakeStreams::Options{}));
  none.window_bytes = 0;
  EXPECT_FALSE(PeerCopies::open(std::move(none)).value()->supports(good));
  auto small = rank.setup(std::make_unique<FakeStreams>(FakeStreams::Options{}));
  small.window_bytes -= 1;
  EXPECT_EQ(PeerCopies::open(std::move(small)).error().code, Code::invalid_argument);
}

}  // namespace
}  // namespace strait::testing
