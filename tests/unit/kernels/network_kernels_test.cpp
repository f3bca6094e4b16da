// The kernel that moves data between GPU ranks and their proxies, on the CPU: what is sent and received, bit by bit.
#include "network_calls.hpp"

#include <array>

namespace strait::kernels {
namespace {

/// Runs calls one after another, as in one stream.
void check(const std::vector<GivenCall>& calls, const std::vector<std::uint32_t>& blocks_of, bool is_slow = false) {
  Rank rank;
  Proxy proxy(rank, is_slow);
  std::jthread carrying([&] {
    for (std::size_t i = 0; i < calls.size(); ++i) proxy.carry_out(calls[i], blocks_of[i]);
  });
  std::uint64_t rounds = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    rank.run(calls[i], blocks_of[i], 32 * (1 + i % 3));
    calls[i].expect_through();
    EXPECT_EQ(rank.counts.calls, i + 1);
    EXPECT_EQ(rank.counts.rounds, rounds += calls[i].call.rounds);
    EXPECT_EQ(rank.counts.gave_up, 0u);
    EXPECT_EQ(rank.launch_counts.collectives, i + 1);
  }
  EXPECT_EQ(rank.mailbox.event, Mailbox::Event::none) << "whom the proxy waits for is not the kernel's business";
}

/// Returns a call with random flows.
GivenCall random_call(Random& random, std::uint32_t rounds, std::uint32_t flows) {
  GivenCall given(rounds, static_cast<std::uint32_t>(random()));
  while (given.flows.size() < flows) {
    GivenCall::Length length;
    length.piece_bytes = std::array{16u, 32u, 48u, 272u, 1040u, 1504u}[random() % 6];
    const std::size_t longest = std::size_t{length.piece_bytes} * rounds;
    length.bytes = random() % 4 == 0 ? longest : random() % longest + 1;
    const auto left = static_cast<std::uint32_t>(flows - given.flows.size());
    given.add(random() % 2 == 0, length, std::min(left, 1 + static_cast<std::uint32_t>(random() % 5)), random() % 16);
  }
  return given;
}
std::uint32_t few(Random& random) { return 1 + static_cast<std::uint32_t>(random() % 11); }

/// Checks that after a failure a launch does nothing, and ends at once rather than when it next reads the abort word.
void expect_nothing_of(const GivenCall& given, Rank& rank, std::uint32_t blocks) {
  rank.mailbox.abort = 1;
  const auto words = [&] {
    const auto* const begin = reinterpret_cast<const std::byte*>(rank.words);
    return Bytes(begin, begin + sizeof(NetworkWords));
  };
  const Bytes before = words();
  rank.run(given, blocks);
  given.expect_untouched();
  EXPECT_TRUE(words() == before) << "nobody is told";
  EXPECT_NE(rank.counts.gave_up, 0u);
}

class Network : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  std::uint32_t blocks() const { return GetParam(); }
  void check(const std::vector<GivenCall>& calls, bool is_slow = false) const {
    kernels::check(calls, std::vector<std::uint32_t>(calls.size(), blocks()), is_slow);
  }
};
INSTANTIATE_TEST_SUITE_P(Blocks, Network, ::testing::Values(1u, 2u, 3u, max_network_blocks),
                         [](const auto& test) { return std::to_string(test.param); });

/// Fewer rounds than there are slots, as many, and more.
TEST_P(Network, RoundsOfAnyNumber) {
  std::vector<GivenCall> calls;
  for (const std::uint32_t rounds :
       {1u, 2u, network_depth - 1, network_depth, network_depth + 1, 3 * network_depth + 1})
    for (const std::size_t less : {0, 5}) {
      const GivenCall::Length length{1040 * rounds - less, 1040};
      calls.push_back(std::move(GivenCall(rounds).add(true, length, 1, less).add(false, length, 1, 2 * less)));
    }
  check(calls);
}

TEST_P(Network, RandomFlows) {
  Random random(blocks());
  std::vector<GivenCall> calls;
  for (const std::uint32_t flows : {1u, 2u, 7u, 20u, max_flows})
    for (const std::uint32_t rounds : {1u, 3u, network_depth + 2, 2 * network_depth + 1})
      calls.push_back(random_call(random, rounds, flows));
  std::shuffle(calls.begin(), calls.end(), random);
  check(calls);
}

/// Pieces of odd lengths begin at places of any alignment, and so do the users' buffers.
TEST_P(Network, AllAlignments) {
  std::vector<GivenCall> calls;
  for (const std::size_t bytes : {1, 15, 33, 1043})
    for (const std::size_t shift : {0, 3, 8}) {
      GivenCall given(2);
      for (const bool sends : {true, false})
        given.add(sends, {1056 + bytes, 1056}, 16, shift).add(sends, {bytes, 1056}, 17);
      calls.push_back(std::move(given));
    }
  check(calls);
}

/// Pieces of many batches for each thread.
TEST_P(Network, LongPieces) {
  constexpr std::uint32_t piece = 100'000;
  std::vector<GivenCall> calls;
  for (const std::size_t shift : {0, 4, 9}) {
    GivenCall given(2);
    for (const bool sends : {true, false}) given.add(sends, {2 * piece - shift, piece}, 2, shift);
    calls.push_back(std::move(given));
  }
  check(calls);
}

TEST_P(Network, OneWayAndNothingAtAll) {
  std::vector<GivenCall> calls;
  for (const std::uint32_t rounds : {1u, 2 * network_depth + 1}) {
    for (const bool sends : {true, false})
      calls.push_back(std::move(GivenCall(rounds).add(sends, {700 * rounds - 3, 704}, 3)));
    calls.emplace_back(rounds);                                                            // a barrier
    calls.push_back(std::move(GivenCall(rounds).add(true, {1, 16}).add(false, {1, 16})));  // done before the call is
  }
  check(calls);
}

TEST_P(Network, ASlowProxy) {
  Random random(blocks() + 100);
  std::vector<GivenCall> calls;
  for (int i = 0; i < 6; ++i) calls.push_back(random_call(random, few(random), 9));
  check(calls, true);
}

/// Launches that receive nothing end before the proxy has done anything, as long as there is room for what they send.
TEST_P(Network, WhatIsOnlySentIsNotAwaited) {
  std::vector<GivenCall> calls;
  while (calls.size() < network_depth) calls.push_back(std::move(GivenCall(1).add(true, {701, 704}, 3)));
  calls.push_back(std::move(GivenCall(3).add(true, {2100, 704}).add(false, {2100, 704})));
  Rank rank;
  for (std::size_t i = 0; i < network_depth; ++i) rank.run(calls[i], blocks());
  EXPECT_EQ(rank.counts.calls, network_depth);
  EXPECT_EQ(seen(rank.words->posted), network_depth);
  std::jthread carrying([&, proxy = Proxy(rank, true)]() mutable {
    for (const GivenCall& given : calls) proxy.carry_out(given, blocks());
  });
  rank.run(calls.back(), blocks());
  calls.back().expect_through();
}

/// Fewer rounds and more than there is room for, mixed with calls that also receive.
TEST_P(Network, CallsOfBothKinds) {
  Random random(blocks() + 300);
  std::vector<GivenCall> calls;
  for (int i = 0; i < 40; ++i) {
    const std::uint32_t rounds = random() % 3 == 0 ? few(random) : 1;
    const GivenCall::Length length{500 * rounds - random() % 400, 512};
    GivenCall& given = calls.emplace_back(rounds, i).add(true, length, 1 + random() % 3, random() % 16);
    if (random() % 4 == 0) given.add(false, length, 1, random() % 16);
    if (random() % 2 == 0) given.add_local_copy(1 + random() % 3000, random() % 16);
  }
  check(calls, true);
}

/// Rounds use the memory of messages' pieces, which the host may still be sending.
TEST_P(Network, RoundsWaitForMessagesBefore) {
  const GivenCall given = std::move(GivenCall(1).add(true, {700, 704}));
  Rank rank;
  rank.counts.calls = rank.counts.messages = rank.words->posted.value = 1;
  const Bytes before(rank.slot(0, true), rank.slot(0, true) + 704);
  std::jthread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(seen(rank.words->posted), 1u);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), rank.slot(0, true)));
    store_word(&rank.words->calls_done.value, 1);
  });
  rank.run(given, blocks());
  EXPECT_EQ(seen(rank.words->posted), 2u);
  EXPECT_EQ(rank.counts.calls_done, 1u);
}

/// No two blocks access the same byte, and none has much more to do than another.
TEST(NetworkShares, FollowOneAnother) {
  constexpr std::uint32_t round = network_depth + 1;  // in this step something is due both ways
  Rank rank;
  for (const std::uint32_t blocks : {1u, 2u, 7u, max_network_blocks})
    for (const std::uint32_t bytes : {1u, 16u, 17u, 16 * blocks - 1, 16 * blocks, 16 * blocks + 1, 5003u})
      for (const bool sends : {true, false}) {
        const std::size_t before = std::size_t{5008} * (sends ? round : round - network_depth);
        const GivenCall given = std::move(GivenCall(round + 1).add(sends, {before + bytes, 5008}));
        const Flow& flow = given.flows[0];
        std::byte *slot = rank.slot(round, sends), *data = flow.data + before;
        const std::uint32_t least = bytes / 16 / blocks * 16;
        gridDim.x = blocks;
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
          const NetworkShare share = share_of(rank.exchange, flow, 0, round);
          EXPECT_LE(share.bytes, least + 16) << bytes << " on " << blocks;
          if (share.bytes == 0) continue;
          EXPECT_EQ(share.to, sends ? slot : data);
          EXPECT_EQ(share.from, sends ? data : slot);
          EXPECT_EQ((data - flow.data) % 16, 0);
          slot += share.bytes;
          data += share.bytes;
        }
        EXPECT_EQ(data, flow.data + before + bytes) << bytes << " on " << blocks;
      }
}

/// All blocks continue to count from where they are, including blocks that a call did not use.
TEST(NetworkCalls, OfOtherNumbersOfBlocks) {
  Random random(5);
  std::vector<GivenCall> calls;
  const std::vector<std::uint32_t> blocks_of = {2, 1, 3, max_network_blocks, 2, 7, max_network_blocks, 1, 3};
  while (calls.size() < blocks_of.size()) calls.push_back(random_call(random, few(random), 12));
  check(calls, blocks_of);
}

/// The proxy stops after so many rounds of a call (the parameter), and the host aborts the kernel.
class AbortedNetwork : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Rounds, AbortedNetwork, ::testing::Values(0u, 1u, network_depth, 2 * network_depth),
                         [](const auto& test) { return std::to_string(test.param); });

TEST_P(AbortedNetwork, EndsAndNoneFollows) {
  constexpr std::uint32_t blocks = 3, rounds = 2 * network_depth + 1;
  const auto make = [](std::uint32_t seed) {
    const GivenCall::Length length{500 * rounds, 512};
    return std::move(GivenCall(rounds, seed).add(true, length, 2, 3).add(false, length, 2, 7));
  };
  const GivenCall aborted = make(1), next = make(2);
  Rank rank;
  std::jthread carrying([&] {
    Proxy(rank).carry_out(aborted, blocks, GetParam());
    std::atomic_ref(rank.mailbox.abort).store(1);
  });
  rank.run(aborted, blocks);
  carrying.join();
  EXPECT_NE(rank.counts.gave_up, 0u);
  EXPECT_EQ(rank.counts.rounds, 0u);
  EXPECT_NE(rank.mailbox.aborted, 0u);
  EXPECT_EQ(rank.mailbox.timed_out, 0u);
  expect_nothing_of(next, rank, blocks);
}

/// The host aborts the call between two of its launches.
TEST(NetworkCalls, AbortedBetweenLaunches) {
  constexpr std::uint32_t blocks = 2, rounds = network_depth + 3;
  const GivenCall::Length length{500 * rounds, 512};
  const GivenCall given = std::move(GivenCall(rounds).add(true, length).add(false, length)), next = GivenCall(1);
  Rank rank;
  rank.run_steps(given, 0, 3, blocks);
  EXPECT_EQ(seen(rank.words->posted), 1u);
  EXPECT_EQ(seen(rank.words->pushed[0]), 3u);
  rank.mailbox.abort = 1;
  rank.run_steps(given, 3, steps_of(given.call), blocks);
  EXPECT_NE(rank.counts.gave_up, 0u);
  EXPECT_EQ(rank.counts.calls, 0u);
  EXPECT_EQ(rank.counts.rounds, 0u);
  EXPECT_EQ(seen(rank.words->posted), 1u);
  given.expect_untouched();
  expect_nothing_of(next, rank, blocks);
}

/// Between launches of a call, received data stays in its slots, and data to send is ready only when its launch begins.
TEST_P(Network, SeveralLaunchesOfACall) {
  Random random(blocks() + 200);
  Rank rank;
  std::vector<GivenCall> calls;
  for (const std::uint32_t rounds : {1u, 5u, network_depth, 3 * network_depth + 2})
    calls.push_back(random_call(random, rounds, 7));
  std::jthread carrying([&, proxy = Proxy(rank)]() mutable {
    for (const GivenCall& given : calls) proxy.carry_out(given, blocks());
  });
  std::uint64_t through = 0;
  for (GivenCall& given : calls) {
    const std::uint32_t steps = steps_of(given.call);
    for (std::uint32_t first = 0; first < steps;) {
      const std::uint32_t end = std::min(steps, first + few(random));
      given.make_ready(end);
      rank.run_steps(given, first, end, blocks());
      first = end;
      EXPECT_EQ(rank.counts.calls, through + (first == steps ? 1 : 0));
    }
    ++through;
    given.expect_through();
  }
}

}  // namespace
}  // namespace strait::kernels
