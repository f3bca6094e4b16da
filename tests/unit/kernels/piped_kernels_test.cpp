// The piped kernels on the CPU, with asynchronous copies that are as late as is allowed: every collective bit by bit,
// with peers that run other kernels in bulk, slots used again, and waits that end.
//
// These must be the first includes: they replace CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include "support/emulated_async.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "host/collective_case.hpp"
#include "kernels/bulk_exchange.cuh"
#include "kernels/piped_kernels.cuh"
#include "support/calls.hpp"
#include "support/emulated_collectives.hpp"
#include "support/random_data.hpp"
#include "support/random_messages.hpp"

namespace strait::testing {
namespace {

using namespace std::chrono_literals;

using kernels::Mailbox;

Machine::Options options() { return {.p2p = true, .piped = true}; }

/// Returns whether any launch of the call is piped.
bool is_piped(const Machine& machine, const CollectiveCase& c, std::size_t misalignment_bytes = 0) {
  alignas(16) static std::byte memory[32];
  std::byte* const data = memory + misalignment_bytes;
  const auto launches = machine.calls(0).launches_of(call_of(c, data, data, Bytes(8)));
  return std::any_of(launches.begin(), launches.end(), [](const DeviceLaunch& launch) { return launch.piped; });
}

TEST(Piped, EveryCollective) {
  for (const std::uint32_t ranks : {2u, 4u}) {
    Machine machine(ranks, 2, options());
    check_collectives(machine, {20'016});
  }
}

/// More chunks than slots, on several lanes at once, and two hops whose rounds overlap.
TEST(Piped, SlotsAreUsedAgain) {
  Machine machine(3, 1, options());
  check_collectives(machine, {150'007});
}
TEST(Piped, WideRoundsWaitForSlots) {
  Machine machine(2, 1, options());
  for (const Collective collective : {Collective::all_reduce, Collective::all_to_all}) {
    CollectiveCase c;
    c.collective = collective;
    c.type = DataType::float32;
    c.count = collective == Collective::all_reduce ? 1'400'003 : 1'400'000;
    c.in_place = true;
    EXPECT_TRUE(is_piped(machine, c));
    check(machine, c);
  }
}

/// Lanes with one chunk less than others go through rounds without a chunk while their sums are still to be stored.
TEST(Piped, LanesOfFewerRounds) {
  Machine machine(3, 1, {.p2p = true, .algorithm = "two_hop", .piped = true, .small_slots = true});
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    CollectiveCase c;
    c.collective = seed % 2 == 0 ? Collective::all_reduce : Collective::reduce;
    c.type = DataType::float32;
    c.count = 3 * (kernels::max_width * (seed + 3) + 1) * 1024 / 4;
    c.seed = seed;
    EXPECT_TRUE(is_piped(machine, c));
    check(machine, c);
  }
}

/// A broadcast in two hops; its root meanwhile copies what it keeps.
TEST(Piped, BroadcastsInTwoHops) {
  for (const std::uint32_t ranks : {3u, 4u}) {
    Machine machine(ranks, 2, {.p2p = true, .algorithm = "two_hop", .piped = true});
    std::uint64_t seed = 1;
    for (const std::size_t count : {1u, 47u, 20'016u, 150'007u})
      for (const bool in_place : {false, true}) {
        CollectiveCase c;
        c.collective = Collective::broadcast;
        c.type = DataType::uint8;
        c.count = count;
        c.in_place = in_place;
        c.root = static_cast<std::uint32_t>(seed % ranks);
        c.seed = ++seed;
        EXPECT_TRUE(is_piped(machine, c));
        check(machine, c);
      }
  }
}

TEST(Piped, EveryTypeAndOperation) {
  std::uint64_t seed = 1;
  for (const std::uint32_t ranks : {4u, 5u}) {
    Machine machine(ranks, 1, options());
    for (int number = 0; number < data_type_count; ++number)
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
        CollectiveCase c;
        c.collective = std::array{Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}[seed % 3];
        c.type = static_cast<DataType>(number);
        c.op = op;
        c.count = c.collective == Collective::reduce_scatter ? 8'192 : 8'199;
        c.in_place = seed % 4 == 0;
        c.seed = ++seed;
        EXPECT_TRUE(is_piped(machine, c)) << describe(c);
        check(machine, c);
        if (HasFailure()) return;
      }
  }
}

/// A single rank's contribution is the sum, and needs no adder.
TEST(Piped, ARankWithoutPeersIsNot) {
  Machine machine(1, 1, options());
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce}) {
    CollectiveCase c;
    c.collective = collective;
    c.type = DataType::float32;
    c.count = 4096;
    EXPECT_FALSE(is_piped(machine, c));
    check(machine, c);
  }
}

/// What asynchronous copies cannot carry goes in bulk by other kernels. Each rank decides by itself.
TEST(Piped, OthersAreNot) {
  const Machine machine(3, 1, options());
  CollectiveCase c;
  c.type = DataType::bfloat16;
  c.count = 4096;
  EXPECT_TRUE(is_piped(machine, c));
  EXPECT_FALSE(is_piped(machine, c, 2));
  c.op = ReduceOp::premul_sum;
  EXPECT_FALSE(is_piped(machine, c));
  c.type = DataType::uint8;
  c.collective = Collective::all_gather;
  EXPECT_TRUE(is_piped(machine, c));
  c.count = 4097;
  EXPECT_FALSE(is_piped(machine, c));
}

/// Ranks choose their kernels by themselves: the slots of a call have the same format with all kernels.
TEST(Piped, TradesWithOtherKernels) {
  Machine machine(3, 1, {.p2p = true, .algorithm = "two_hop", .piped = true});
  for (const auto& [collective, root] : {std::pair{Collective::all_reduce, 0u},
                                         {Collective::all_gather, 0u},
                                         {Collective::reduce, 0u},
                                         {Collective::broadcast, 0u},
                                         {Collective::broadcast, 1u}}) {
    constexpr std::size_t count = 100'000;
    std::vector<Bytes> inputs(3);
    for (std::uint32_t rank = 0; rank < 3; ++rank) inputs[rank] = random_elements(DataType::float32, count, rank);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank, collective = collective, root = root] {
        const std::size_t shift = rank == 1 ? 4 : 0;  // where its buffers begin they cannot be piped
        Bytes from(count * 4 + 32), to(3 * count * 4 + 32);
        const auto aligned = [&](Bytes& bytes) {
          return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(bytes.data()) + 15) / 16 * 16 + shift);
        };
        std::byte *const input = aligned(from), *const output = aligned(to);
        std::copy(inputs[rank].begin(), inputs[rank].end(), input);
        CollectiveCase c;
        c.collective = collective;
        c.root = root;
        c.type = DataType::float32;
        c.count = count;
        const auto launches = machine.calls(rank).launches_of(call_of(c, input, output, Bytes(8)));
        ASSERT_EQ(launches.at(0).piped, rank != 1);
        machine.run(rank, call_of(c, input, output, Bytes(8)));
        const Bytes expected = reference_output(
            {.collective = collective, .type = c.type, .op = c.op, .root = root, .inputs = inputs}, rank);
        EXPECT_EQ(first_difference(expected, {output, expected.size()}, c.type, inputs), "") << "rank " << rank;
      });
  }
}

/// The same holds for the messages of a group, even if those of one rank do not wait for one another
/// (DeviceLaunch::independent).
TEST(Piped, TradesWithMessagesApart) {
  constexpr std::uint32_t ranks = 3, independent_rank = 1;
  const Messages messages{{0, 1, 150'007}, {1, 2, 90'000}, {2, 0, 150'001}, {1, 0, 40'000}};
  for (const std::uint32_t lanes : {1u, 2u}) {
    Machine machine(ranks, lanes, options());
    std::vector<Bytes> sent, memory(messages.size());
    for (const Sent& message : messages) {
      sent.push_back(random_elements(DataType::uint8, message.bytes, message.bytes));
      memory[sent.size() - 1].resize(2 * (message.bytes + 48));
    }
    const auto buffer_of = [&](std::size_t number, std::uint32_t rank, bool sends) {
      std::byte* const begin = memory[number].data() + (sends ? 0 : memory[number].size() / 2);
      return begin + (16 - reinterpret_cast<std::uintptr_t>(begin) % 16) + (rank == independent_rank ? 4 : 0);
    };
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        Random random(rank);
        const auto own_buffer = [&](std::size_t number, bool sends) { return buffer_of(number, rank, sends); };
        for (std::size_t number = 0; number < messages.size(); ++number)
          if (messages[number].from == rank)
            std::copy(sent[number].begin(), sent[number].end(), own_buffer(number, true));
        const auto launches = machine.calls(rank).launches_of(calls_of(messages, rank, random, own_buffer));
        ASSERT_EQ(launches.size(), 1u);
        ASSERT_TRUE(launches[0].piped == (rank != independent_rank) &&
                    launches[0].independent == (rank == independent_rank));
        machine.run(launches, DataType::uint8);
      });
    threads.clear();
    for (std::size_t number = 0; number < messages.size(); ++number)
      EXPECT_EQ(std::memcmp(buffer_of(number, messages[number].to, false), sent[number].data(), sent[number].size()), 0)
          << number << ", lanes " << lanes;
  }
}

/// A rank's own input has been sent before it is overwritten.
TEST(Piped, InPlaceWaitsForTheSender) {
  Machine machine(3, 2, options());
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CollectiveCase c;
    c.collective = seed % 2 == 0 ? Collective::all_reduce : Collective::all_to_all;
    c.type = DataType::float32;
    c.count = 1000;
    c.in_place = true;
    c.seed = seed;
    check(machine, c);
    if (HasFailure()) return;
  }
}

TEST(Piped, WaitsEnd) {
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    Machine machine(3, 1, {.p2p = true, .algorithm = "two_hop", .piped = true});
    std::vector<std::jthread> threads;
    for (const std::uint32_t rank : {0u, 2u})  // rank 1 never comes
      threads.emplace_back([&, rank] {
        constexpr std::size_t count = 60'000;
        Bytes from(count * 4 * 3 + 16), to(count * 4 * 3 + 16);
        const auto aligned = [](Bytes& bytes) {
          return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(bytes.data()) + 15) / 16 * 16);
        };
        CollectiveCase c;
        c.collective = collective;
        c.type = DataType::float32;
        c.count = count;
        auto launches = machine.calls(rank).launches_of(call_of(c, aligned(from), aligned(to), Bytes(8)));
        std::visit([](auto& argument) { argument.ring.timeout_ns = 300'000'000; }, launches.at(0).argument);
        ASSERT_TRUE(launches[0].piped);
        machine.run(launches, c.type);
        EXPECT_EQ(machine.mailbox(rank).event, Mailbox::Event::timeout) << "rank " << rank;
      });
  }
}

/// This also holds on lanes that the launch that gave up did not use, and whichever of the two launches was piped.
TEST(Piped, NothingFollowsALaunchThatGaveUp) {
  for (const auto& [first, second] : {std::pair(true, true), {true, false}, {false, true}})
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
      Machine machine(2, 2, {.p2p = true, .algorithm = "two_hop", .piped = true});
      alignas(16) static std::byte input[500'016], output[500'016];
      const auto run = [&](std::size_t count, bool piped) {
        CollectiveCase c;
        c.collective = collective;
        c.type = DataType::float32;
        c.count = count;
        const std::size_t shift = piped ? 0 : 4;
        auto launches = machine.calls(0).launches_of(call_of(c, input + shift, output + shift, Bytes(8)));
        std::visit([](auto& argument) { argument.ring.timeout_ns = 50'000'000; }, launches.at(0).argument);
        ASSERT_EQ(launches[0].piped, piped);
        machine.run(launches, c.type);
        EXPECT_EQ(launches[0].blocks, count == 64 ? 1u : 2u);
      };
      run(64, first);  // rank 1 never comes
      EXPECT_EQ(std::exchange(machine.mailbox(0).event, Mailbox::Event::none), Mailbox::Event::timeout);
      run(60'000, second);
      EXPECT_EQ(machine.mailbox(0).event, Mailbox::Event::none) << name(collective) << ": it waited";
    }
}

/// It does not name a rank that itself waits for the late one: soon no rank makes progress or frees slots.
TEST(Piped, AWaitNamesTheRankThatIsLate) {
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
    Machine machine(3, 1, {.p2p = true, .algorithm = "two_hop", .piped = true, .small_slots = true});
    CollectiveCase c;
    c.collective = collective;
    c.type = DataType::float32;
    c.count = 60'000;
    Bytes input(c.count * 4 * 3), output(input.size()), others_output(input.size());
    auto others = machine.calls(2).launches_of(call_of(c, input.data(), others_output.data(), Bytes(8)));
    auto own = machine.calls(0).launches_of(call_of(c, input.data(), output.data(), Bytes(8)));
    ASSERT_TRUE(own.at(0).piped && others.at(0).piped);
    const std::jthread other([&] { machine.run(others, c.type); });
    // Rank 2 has sent its first chunks when rank 0 begins; rank 1 never comes.
    const kernels::Ring& ring = machine.calls(0).ring();
    const std::uint32_t lanes = std::visit([](const auto& argument) { return argument.width; }, own[0].argument);
    for (std::uint32_t lane = 0; lane < lanes; ++lane)
      while (kernels::acquire_word(
                 kernels::LaneSlots<kernels::Bulk>(ring, {2, 0, kernels::Cast::single, lane}).flag(0)) == 0)
        std::this_thread::sleep_for(1ms);
    std::visit([](auto& argument) { argument.ring.timeout_ns = 300'000'000; }, own[0].argument);
    machine.run(own, c.type);
    EXPECT_EQ(machine.mailbox(0).event, Mailbox::Event::timeout) << name(collective);
    EXPECT_EQ(machine.mailbox(0).peer, 1u) << name(collective);
    std::atomic_ref(machine.mailbox(2).abort) = 1;
  }
}

/// Copies that a block has begun end before the block does, whenever the abort comes. The emulation checks this.
TEST(Piped, AnAbortLeavesNothingUnderWay) {
  int aborted = 0;
  for (const auto delay : {0us, 500us, 2000us, 5000us, 9000us})
    for (const auto& [collective, algorithm] : {std::pair(Collective::all_reduce, "one_hop"),
                                                {Collective::all_reduce, "two_hop"},
                                                {Collective::all_to_all, ""}}) {
      Machine machine(2, 1, {.p2p = true, .algorithm = algorithm, .piped = true});
      std::vector<std::jthread> threads;
      for (std::uint32_t rank = 0; rank < 2; ++rank)
        threads.emplace_back([&machine, collective = collective, rank] {
          constexpr std::size_t bytes = 4 << 20;
          Bytes from(bytes), to(bytes);
          CollectiveCase c;
          c.collective = collective;
          c.type = DataType::float32;
          c.count = bytes / sizeof(float) / (collective == Collective::all_to_all ? 2 : 1);
          ASSERT_TRUE(kernels::is_aligned(from.data()) && kernels::is_aligned(to.data()));
          machine.run(rank, call_of(c, from.data(), to.data(), Bytes(8)));
        });
      std::this_thread::sleep_for(delay);
      for (std::uint32_t rank = 0; rank < 2; ++rank) std::atomic_ref(machine.mailbox(rank).abort) = 1;
      threads.clear();
      for (std::uint32_t rank = 0; rank < 2; ++rank) aborted += machine.mailbox(rank).event == Mailbox::Event::aborted;
    }
  EXPECT_GT(aborted, 0) << "no kernel ended before its time";
}

/// This also holds if the abort comes when all copies have begun, and the warps that wait for them leave.
TEST(Piped, AnAbortAtTheLastLoadLeavesNothingUnderWay) {
  Machine machine(2, 1, {.p2p = true, .algorithm = "one_hop", .piped = true});
  CollectiveCase c;
  c.collective = Collective::reduce;
  c.type = DataType::float32;
  c.count = 1000;
  Bytes from = random_elements(c.type, c.count, 1), to(from.size());
  const Call call = call_of(c, from.data(), to.data(), Bytes(8));
  machine.run(1, call);  // sends, and waits for no rank
  const DeviceLaunch launch = machine.calls(0).launches_of(call).at(0);
  ASSERT_TRUE(launch.piped);
  const kernels::ExchangeSchedule<true> schedule(std::get<kernels::Exchange>(launch.argument));
  using Memory = kernels::PipedSumMemory;
  run_threads(kernels::warp_threads, 1, 0, 1, [&] {
    auto& memory = kernels::launched_memory<Memory>();
    kernels::prepare_memory(memory, true, kernels::warp_threads);
    if (threadIdx.x == 0) {
      kernels::name_stream(schedule, 0, memory.streams[0]);
      EXPECT_TRUE(kernels::resume(schedule.ring(), memory.streams[0]));
      kernels::store_progress(memory.failed, 1);
    }
    __syncthreads();
    kernels::Fetcher<kernels::ExchangeSchedule<true>, Memory>(schedule, memory).run();
    __syncthreads();
    EXPECT_EQ(std::memcmp(memory.sets.sets[0], from.data(), 16), 0) << "the contribution of rank 0 is not there";
  });
}

}  // namespace
}  // namespace strait::testing
