// Kernels that exchange data through host memory, or in bulk through peers' memory, on the CPU: every collective bit by
// bit, with threads delayed at random, slots reused, flags that wrap, and waits that end.
#include "support/emulated_collectives.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <variant>
#include <vector>

#include "host/collective_case.hpp"
#include "support/calls.hpp"
#include "support/random_data.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using kernels::Mailbox;

constexpr std::size_t always = ~std::size_t{0} >> 1;

/// The parameter tells whether slots are in peers' memory or in host memory.
class Packets : public ::testing::TestWithParam<bool> {};
class Bulk : public ::testing::TestWithParam<bool> {};
const auto memory_name = [](const auto& test) { return test.param ? "Peers" : "Host"; };
INSTANTIATE_TEST_SUITE_P(Memory, Packets, ::testing::Bool(), memory_name);
INSTANTIATE_TEST_SUITE_P(Memory, Bulk, ::testing::Bool(), memory_name);

TEST_P(Packets, EveryCollective) {
  for (const std::uint32_t ranks : {1u, 2u, 3u, 4u}) {
    Machine machine(ranks, 2, {.flagged_bytes = always, .p2p = GetParam()});
    check_collectives(machine, {1, 77, 5003});
  }
}
TEST_P(Bulk, EveryCollective) {
  for (const std::uint32_t ranks : {1u, 2u, 3u, 4u}) {
    Machine machine(ranks, 2, {.p2p = GetParam()});
    check_collectives(machine, {1, 515, 20'009});
  }
}

/// Calls with their own limits of blocks, between others, over the same lanes.
TEST_P(Bulk, CallsOfFewBlocksStandBetweenOthers) {
  Machine machine(3, 6, {.flagged_bytes = 2048, .p2p = GetParam()});
  std::uint64_t seed = 1;
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
    for (const std::size_t count : {300, 40'007})
      for (const std::uint32_t max_sms : {1u, 0u, 4u}) {
        CollectiveCase c;
        c.collective = collective;
        c.type = DataType::bfloat16;
        c.count = count;
        c.max_sms = max_sms;
        c.seed = ++seed;
        check(machine, c);
        Bytes data(3 * count * size_bytes(c.type));
        for (const DeviceLaunch& launch : machine.calls(0).launches_of(call_of(c, data.data(), data.data(), Bytes(8))))
          EXPECT_LE(launch.blocks, max_sms == 0 ? 6 : max_sms) << describe(c);
      }
}

/// Links so slow that calls take two hops from a few hundred bytes on, cut into rounds that overlap.
TEST_P(Bulk, EveryCollectiveOverSlowLinks) {
  Machine machine(4, 2, {.p2p = GetParam(), .exchange_gbps = 0.3});
  check_collectives(machine, {1, 77, 5009});
  CollectiveCase c;
  c.type = DataType::float32;
  c.count = 300'007;
  check(machine, c);
  Bytes data(c.count * sizeof(float));
  const auto launches = machine.calls(0).launches_of(call_of(c, data.data(), data.data(), Bytes(4)));
  const auto& two_hop = std::get<kernels::TwoHop>(launches.at(0).argument);
  EXPECT_GT(two_hop.rounds, 1u);
}

/// More chunks than slots, on the lanes of one block: every slot is used many times.
TEST_P(Bulk, SlotsAreUsedAgain) {
  Machine machine(3, 1, {.p2p = GetParam()});
  check_collectives(machine, {150'007});
}

/// So many rounds in one call that its blocks, which serve all their lanes at once, wait for slots to be freed.
TEST_P(Bulk, WideRoundsWaitForSlots) {
  Machine machine(2, 1, {.p2p = GetParam()});
  for (const std::size_t count : {1'400'000, 1'400'003}) {
    CollectiveCase c;
    c.type = DataType::float32;
    c.count = count;
    Bytes data(count * sizeof(float));
    const auto launches = machine.calls(0).launches_of(call_of(c, data.data(), data.data(), Bytes(4)));
    const auto& exchange = std::get<kernels::Exchange>(launches.at(0).argument);
    EXPECT_EQ(launches[0].blocks, 1u);
    EXPECT_EQ(exchange.width, kernels::max_width);
    EXPECT_GT(exchange.rounds, kernels::slot_depth);
    check(machine, c);
  }
}

/// Two hops are not chosen for two ranks, but can be forced.
TEST_P(Bulk, TwoHopsBetweenTwoRanks) {
  Machine machine(2, 1, {.p2p = GetParam(), .algorithm = "two_hop"});
  for (const std::size_t count : {std::size_t{7}, std::size_t{300'007}}) {
    CollectiveCase c;
    c.type = DataType::bfloat16;
    c.count = count;
    Bytes data(count * 2);
    const auto launches = machine.calls(0).launches_of(call_of(c, data.data(), data.data(), Bytes(4)));
    EXPECT_TRUE(std::holds_alternative<kernels::TwoHop>(launches.at(0).argument));
    check(machine, c);
  }
}

/// Whole granules at aligned places and odd ends take different paths, for every number of ranks with its own kernel.
TEST_P(Bulk, GranulesAndOddEnds) {
  constexpr DataType types[] = {DataType::bfloat16, DataType::float16, DataType::float32,    DataType::float64,
                                DataType::int32,    DataType::uint8,   DataType::float8_e4m3};
  constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum, ReduceOp::max, ReduceOp::sum};
  std::uint64_t seed = 1;
  for (const std::uint32_t ranks : {2u, 3u, 4u, 5u}) {
    Machine machine(ranks, 1, {.p2p = GetParam()});
    for (const DataType type : types)
      for (const std::size_t count : {std::size_t{16'384}, std::size_t{16'390}}) {
        CollectiveCase c;
        c.collective = seed % 3 == 0 ? Collective::reduce_scatter : Collective::all_reduce;
        c.type = type;
        c.op = ops[seed % std::size(ops)];
        c.count = count;
        c.in_place = seed % 4 == 0;
        c.misalignment_bytes = seed % 7 == 0 ? size_bytes(type) : 0;
        c.seed = ++seed;
        check(machine, c);
        if (HasFailure()) return;
      }
  }
}

/// Packets and bulk have separate slots, so that what one leaves behind is never taken for the other's data.
TEST(Both, TakeTurns) {
  Machine machine(3, 2, {.flagged_bytes = 4096});
  for (int turn = 0; turn < 2; ++turn) check_collectives(machine, {64, 3000, 900});
}

/// Flags distinguish 2^24 uses. Around the point where they wrap, nothing goes wrong even if the far end of a slot was
/// last written long ago.
TEST_P(Packets, FlagsWrap) {
  for (const std::uint64_t first_use : {(std::uint64_t{1} << 22) - 2, (std::uint64_t{1} << 24) - 3}) {
    Machine machine(3, 1, {.flagged_bytes = always, .first_use = first_use, .p2p = GetParam()});
    check_collectives(machine, {900, 3, 2000});
  }
}

/// A broadcast's root runs ahead of its readers by all slots of its ring, and wipes one, while the last reader is late.
/// This is tested with prompt kernels, also with more ranks than these poll at a time, and with other kernels.
TEST(Broadcast, FlagsWrapWhileOneReaderIsLate) {
  struct Form {
    std::uint32_t ranks;
    std::size_t bytes;
    bool prompt;
  };
  constexpr int calls = 8;
  for (const Form form : {Form{3, 64, true}, Form{6, 64, true}, Form{3, 6000, false}}) {
    Machine machine(form.ranks, 1, {.flagged_bytes = always, .first_use = (std::uint64_t{1} << 22) - 4});
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < form.ranks; ++rank)
      threads.emplace_back([&, rank] {
        if (rank + 1 == form.ranks) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        for (int turn = 0; turn < calls; ++turn) {
          Bytes data(form.bytes, rank == 0 ? static_cast<std::byte>(turn) : poison);
          CollectiveCase c;
          c.collective = Collective::broadcast;
          c.type = DataType::uint8;
          c.count = data.size();
          auto launches = machine.calls(rank).launches_of(call_of(c, data.data(), data.data(), Bytes(8)));
          ASSERT_EQ(launches.at(0).prompt, form.prompt);
          std::get<kernels::Exchange>(launches[0].argument).ring.timeout_ns = 5'000'000'000;
          machine.run(launches, c.type);
          ASSERT_EQ(machine.mailbox(rank).event, Mailbox::Event::none) << "rank " << rank << ", call " << turn;
          EXPECT_EQ(data, Bytes(form.bytes, static_cast<std::byte>(turn)));
        }
      });
  }
}

/// How a sum of `count` elements goes: by prompt kernels, by others in packets, or in bulk.
struct WaitingForm {
  std::size_t flagged_bytes;
  std::size_t count;
  bool prompt;
};
void expect_form(const std::vector<DeviceLaunch>& launches, const WaitingForm& form) {
  EXPECT_EQ(launches.at(0).prompt, form.prompt);
  EXPECT_EQ(launches[0].protocol, form.flagged_bytes == 0 ? kernels::Protocol::bulk : kernels::Protocol::packets);
}

/// Rank 1 has taken data from one of four slots of rank 0, and waits for rank 2: by then it must have freed that slot.
TEST(Waiting, NobodyWaitsBeforeItHasGivenBack) {
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{6000}}) {
    Machine machine(3, 1, {.flagged_bytes = always, .p2p = true});
    const auto gather = [&](std::uint32_t rank, std::uint32_t root, std::uint64_t timeout_ns) {
      Bytes data(bytes, std::byte{1}), output(3 * bytes);
      CollectiveCase c;
      c.collective = Collective::gather;
      c.root = static_cast<int>(root);
      c.type = DataType::uint8;
      c.count = bytes;
      auto launches = machine.calls(rank).launches_of(call_of(c, data.data(), output.data(), Bytes(8)));
      EXPECT_EQ(launches.at(0).prompt, bytes == 64);
      std::get<kernels::Exchange>(launches[0].argument).ring.timeout_ns = timeout_ns;
      machine.run(launches, c.type);
    };
    constexpr std::uint64_t soon_ns = 1'000'000'000, late_ns = 3'000'000'000;
    for (std::uint32_t use = 0; use < kernels::slot_depth; ++use) gather(0, 1, soon_ns);
    for (std::uint32_t use = 0; use < kernels::slot_depth; ++use) gather(1, 2, soon_ns);
    gather(2, 1, soon_ns);
    gather(1, 1, soon_ns);
    {
      std::jthread waiting([&] { gather(1, 2, late_ns); });  // rank 2 takes nothing
      gather(0, 1, soon_ns);
    }
    EXPECT_EQ(machine.mailbox(0).event, Mailbox::Event::none) << bytes;
    EXPECT_EQ(machine.mailbox(1).event, Mailbox::Event::timeout) << bytes;
  }
}

/// A launch that follows one that gave up in the stream must not send: its peer would take the data for that of the
/// earlier launch.
TEST(Waiting, NothingFollowsALaunchThatGaveUp) {
  for (const WaitingForm form : {WaitingForm{always, 1000, true}, {always, 9000, false}, {0, 200'000, false}}) {
    Machine machine(2, 1, {.flagged_bytes = form.flagged_bytes});
    CollectiveCase c;
    c.type = DataType::uint8;
    c.count = form.count;  // in bulk, several rounds
    const auto run = [&](std::uint32_t rank, int value, std::uint64_t timeout_ns) {
      Bytes data(c.count, static_cast<std::byte>(value));
      auto launches = machine.calls(rank).launches_of(call_of(c, data.data(), data.data(), Bytes(8)));
      expect_form(launches, form);
      std::get<kernels::Exchange>(launches.at(0).argument).ring.timeout_ns = timeout_ns;
      machine.run(launches, c.type);
      return data;
    };
    run(0, 1, 20'000'000);  // no peer is there
    ASSERT_EQ(machine.mailbox(0).event, Mailbox::Event::timeout);
    std::jthread next([&] {
      const Stopwatch watch;
      run(0, 2, 20'000'000'000);
      EXPECT_LT(watch.elapsed(), std::chrono::seconds(5)) << "it waited all the same";
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const Bytes output = run(1, 10, 2'000'000'000);
    if (machine.mailbox(1).event == Mailbox::Event::none) {
      EXPECT_EQ(output, Bytes(c.count, std::byte{11}));  // the sum of the first call, if rank 1 takes it as valid
    }
  }
}

/// Nor may it send on lanes that the launch that gave up did not use: what it sends may be what that launch left
/// behind, and the peer, which was late, may have got all data of the earlier launch.
TEST(Waiting, NothingFollowsOnOtherLanesEither) {
  for (const bool p2p : {false, true}) {
    Machine machine(2, 1, {.flagged_bytes = 2048, .p2p = p2p});
    const auto run = [&](std::uint32_t rank, std::size_t count, Bytes& input, std::uint64_t timeout_ns) {
      CollectiveCase c;
      c.collective = Collective::all_gather;
      c.type = DataType::uint8;
      c.count = count;
      Bytes output(2 * count, std::byte{0xa5});
      auto launches = machine.calls(rank).launches_of(call_of(c, input.data(), output.data(), Bytes(8)));
      std::get<kernels::Exchange>(launches.at(0).argument).ring.timeout_ns = timeout_ns;
      machine.run(launches, c.type);
      return output;
    };
    Bytes first(4096, std::byte{1}), second(4096, std::byte{2});
    Bytes left = run(0, first.size(), first, 20'000'000);  // no peer is there
    ASSERT_EQ(machine.mailbox(0).event, Mailbox::Event::timeout);
    std::jthread next([&] { run(0, 1000, left, 500'000'000); });
    Bytes late = run(1, second.size(), second, 5'000'000'000);
    EXPECT_EQ(machine.mailbox(1).event, Mailbox::Event::none) << "the first call is whole there";
    const Bytes output = run(1, 1000, late, 500'000'000);
    EXPECT_EQ(machine.mailbox(1).event, Mailbox::Event::timeout) << (p2p ? "peers'" : "host") << " memory";
    EXPECT_TRUE(std::all_of(output.begin(), output.begin() + 1000, [](std::byte b) { return b == std::byte{0xa5}; }));
  }
}

TEST(Barrier, WaitsForEverybody) {
  Machine machine(3, 2, {.flagged_bytes = 4096});
  std::atomic<int> came{0};
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20 * rank));
      ++came;
      machine.run(rank, Call{});
      EXPECT_EQ(came, 3);
    });
}

TEST(Waiting, EndsAtTheDeadlineAndNamesThePeer) {
  Machine machine(2, 1, {});
  Bytes data(4096);
  CollectiveCase c;
  c.count = 1000;
  Call call = call_of(c, data.data(), data.data(), Bytes(4));
  auto launches = machine.calls(1).launches_of(call);
  ASSERT_EQ(launches.size(), 1u);
  std::get<kernels::Exchange>(launches[0].argument).ring.timeout_ns = 20'000'000;
  machine.run(launches, c.type);
  EXPECT_EQ(machine.mailbox(1).event, Mailbox::Event::timeout);
  EXPECT_EQ(machine.mailbox(1).peer, 0u);
  EXPECT_NE(machine.mailbox(1).holds_copies, 0u) << "its peers do not know of it";
}

TEST(Waiting, EndsWhenTheHostSaysSo) {
  for (const WaitingForm form : {WaitingForm{always, 500, true}, {always, 3000, false}, {0, 1000, false}}) {
    Machine machine(2, 1, {.flagged_bytes = form.flagged_bytes});
    Bytes data(form.count * sizeof(float));
    CollectiveCase c;
    c.count = form.count;
    const Call call = call_of(c, data.data(), data.data(), Bytes(4));
    expect_form(machine.calls(0).launches_of(call), form);
    std::jthread host([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      std::atomic_ref(machine.mailbox(0).abort) = 1;
    });
    machine.run(0, call);
    EXPECT_EQ(machine.mailbox(0).event, Mailbox::Event::aborted);
    EXPECT_EQ(machine.mailbox(0).holds_copies, 0u) << "its peers know of it";
  }
}

/// A rank whose call differs takes none of the others' data. The hashes of 7 and of 8 elements have the same low byte.
TEST(Waiting, CallsThatDifferDoNotMeet) {
  for (const WaitingForm form :
       {WaitingForm{always, 500, true}, {always, 7, true}, {always, 3000, false}, {0, 1000, false}}) {
    Machine machine(2, 1, {.flagged_bytes = form.flagged_bytes});
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        Bytes input(16'000, std::byte{1}), output(input.size(), poison);
        CollectiveCase c;
        c.count = form.count + rank;
        auto launches = machine.calls(rank).launches_of(call_of(c, input.data(), output.data(), Bytes(4)));
        expect_form(launches, form);
        std::get<kernels::Exchange>(launches.at(0).argument).ring.timeout_ns = 50'000'000;
        machine.run(launches, c.type);
        EXPECT_EQ(machine.mailbox(rank).event, Mailbox::Event::timeout);
        EXPECT_EQ(output, Bytes(input.size(), poison));
      });
  }
}

}  // namespace
}  // namespace strait::testing
