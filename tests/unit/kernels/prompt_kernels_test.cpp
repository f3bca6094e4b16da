// Prompt kernels (kernels/prompt.cuh) on the CPU: every collective bit by bit, with more ranks than a thread has in
// flight at a time, flags that wrap, and a rank that has nothing for a peer that is late.
#include "support/emulated_collectives.hpp"
//
#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "host/collective_case.hpp"
#include "kernels/prompt.hpp"
#include "support/calls.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using kernels::Exchange;
using kernels::Protocol;

constexpr std::size_t always = ~std::size_t{0} >> 1;

/// The parameter tells whether slots are in peers' memory or in host memory, where data for all ranks is written once.
class Prompt : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Memory, Prompt, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Peers" : "Host"; });

/// Two, three and four ranks are tested in staged_kernels_test.
TEST_P(Prompt, EveryCollectiveOfManyRanks) {
  for (const std::uint32_t ranks : {5u, 9u}) {
    Machine machine(ranks, 2, {.flagged_bytes = always, .p2p = GetParam(), .algorithm = "one_hop"});
    CollectiveCase c;
    c.type = DataType::float32;
    c.count = 77;
    Bytes data(c.count * sizeof(float));
    const auto launches = machine.calls(0).launches_of(call_of(c, data.data(), data.data(), Bytes(4)));
    ASSERT_TRUE(launches.at(0).prompt);
    check_collectives(machine, {1, 77});
  }
}

TEST_P(Prompt, FlagsOfManyRanksWrap) {
  Machine machine(6, 1, {.flagged_bytes = always, .first_use = (std::uint64_t{1} << 22) - 2, .p2p = GetParam()});
  check_collectives(machine, {3, 100});
}

/// Rank 0 has filled all slots to rank 2, which takes nothing, and then exchanges data with rank 1.
TEST(PromptMessages, NobodyWaitsForASlotThatNothingGoesTo) {
  Machine machine(3, 1, {.flagged_bytes = always, .p2p = true});
  const auto send = [&](std::uint32_t to, std::byte value) {
    Bytes data(64, value);
    CollectiveCase c;
    c.collective = Collective::gather;
    c.root = static_cast<int>(to);
    c.type = DataType::uint8;
    c.count = data.size();
    auto launches = machine.calls(0).launches_of(call_of(c, data.data(), nullptr, Bytes(8)));
    ASSERT_TRUE(launches.at(0).prompt);
    std::get<Exchange>(launches[0].argument).ring.timeout_ns = 200'000'000;
    machine.run(launches, c.type);
  };
  for (std::uint32_t use = 0; use < kernels::slot_depth; ++use) send(2, std::byte{1});
  for (std::uint32_t use = 0; use < kernels::slot_depth; ++use) send(1, std::byte{1});
  EXPECT_EQ(machine.mailbox(0).event, kernels::Mailbox::Event::none);
  send(1, std::byte{1});
  EXPECT_EQ(machine.mailbox(0).event, kernels::Mailbox::Event::timeout) << "here it must";
  EXPECT_EQ(machine.mailbox(0).peer, 1u);
}

TEST(PromptCalls, AreShort) {
  Exchange call{};
  call.rounds = 1;
  call.pieces = kernels::max_prompt_threads / 32;
  call.op = ReduceOp::sum;
  EXPECT_TRUE(kernels::can_be_prompt(call, Protocol::lines, true));
  EXPECT_FALSE(kernels::can_be_prompt(call, Protocol::bulk, true));
  call.op = ReduceOp::max;
  EXPECT_FALSE(kernels::can_be_prompt(call, Protocol::lines, true));
  EXPECT_TRUE(kernels::can_be_prompt(call, Protocol::packets, true));
  EXPECT_TRUE(kernels::can_be_prompt(call, Protocol::lines, false));
  ++call.pieces;
  EXPECT_FALSE(kernels::can_be_prompt(call, Protocol::lines, false)) << "a block has no warp for it";
  call.pieces = 1;
  call.ring.ranks = 2;
  call.send[1].bytes = kernels::most_prompt_packets_one_way + 1;
  EXPECT_TRUE(kernels::can_be_prompt(call, Protocol::packets, false));
  EXPECT_TRUE(kernels::can_be_prompt(call, Protocol::lines, false));
  call.lead = 0;
  EXPECT_FALSE(kernels::can_be_prompt(call, Protocol::packets, false));
  EXPECT_TRUE(kernels::can_be_prompt(call, Protocol::packets, true));
  call.lead = 1;
  call.receive[0].bytes = kernels::most_prompt_packets + 1;
  EXPECT_FALSE(kernels::can_be_prompt(call, Protocol::packets, false));
  EXPECT_FALSE(kernels::can_be_prompt(call, Protocol::packets, true));
  call.rounds = 2;
  EXPECT_FALSE(kernels::can_be_prompt(call, Protocol::lines, false));
}

}  // namespace
}  // namespace strait::testing
