// All-reduces that CPU threads add up: the kernels that bring the chunks to them, on the CPU, and the threads
// themselves. Bit by bit, with threads of the kernels delayed at random, slots reused, late ranks, and waits that end.
#include "support/emulated_reducers.hpp"
//
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "host/collective_case.hpp"
#include "support/calls.hpp"
#include "support/random_data.hpp"
#include "support/reference.hpp"

namespace strait::testing {
namespace {

using cpu_reducers::ReducerMemory;
using namespace std::chrono_literals;

constexpr std::byte poison{0xa5};

/// Makes all calls on every rank, one after another. One rank is `late` by that time before each call.
void check(ReducedRanks& machine, const std::vector<CollectiveCase>& cases, std::chrono::milliseconds late = {},
           const std::function<bool(std::uint32_t rank, std::size_t call)>& is_in_graph = {}) {
  const std::uint32_t ranks = machine.ranks();
  std::vector<std::vector<Bytes>> inputs(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      inputs[i].push_back(random_elements(cases[i].type, cases[i].count, 1000 * cases[i].seed + rank));
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const CollectiveCase& c = cases[i];
        const Bytes expected = reference_output({.collective = c.collective,
                                                 .type = c.type,
                                                 .op = c.op,
                                                 .root = 0,
                                                 .premul_scalars = {},
                                                 .inputs = inputs[i]},
                                                rank);
        const std::size_t begin = 64 + c.misalignment_bytes, size = expected.size();
        Bytes input(begin + size + 64, poison), output(begin + size + 64, poison);
        std::copy(inputs[i][rank].begin(), inputs[i][rank].end(), input.data() + begin);
        Bytes& written = c.in_place ? input : output;
        machine.run(rank, call_of(c, input.data() + begin, written.data() + begin, Bytes(8)),
                    rank == i % ranks ? late : 0ms, is_in_graph && is_in_graph(rank, i));
        EXPECT_EQ(first_difference(expected, {written.data() + begin, size}, c.type, inputs[i]), "")
            << describe(c) << " on rank " << rank << " of " << ranks;
        std::fill_n(written.data() + begin, size, poison);
        EXPECT_EQ(written, Bytes(written.size(), poison)) << describe(c);
      }
    });
}

CollectiveCase all_reduce(std::uint64_t seed, std::size_t count) {
  constexpr DataType types[] = {DataType::bfloat16, DataType::float32, DataType::float16,    DataType::float64,
                                DataType::int32,    DataType::uint8,   DataType::float8_e4m3};
  constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::prod};
  CollectiveCase c;
  c.type = types[seed % std::size(types)];
  c.op = ops[seed % std::size(ops)];
  c.count = count;
  c.in_place = seed % 2 == 0;
  c.misalignment_bytes = seed % 3 == 0 ? size_bytes(c.type) : 0;
  c.seed = seed + 1;
  return c;
}

/// Returns all-reduces of one element, of less than a chunk, with odd ends, and of many more chunks than slots.
std::vector<CollectiveCase> all_reduces() {
  std::vector<CollectiveCase> cases;
  for (const std::size_t count : {1, 700, 5003, 60'001, 130'000})
    for (int i = 0; i < 3; ++i) cases.push_back(all_reduce(cases.size(), count));
  return cases;
}

TEST(Reducers, GiveTheBitsOfTheReference) {
  for (const std::uint32_t ranks : {2u, 3u, 4u}) {
    ReducedRanks machine(ranks, {});
    check(machine, all_reduces());
  }
}

/// More threads than lanes, several lanes per thread, and one block for all lanes.
TEST(Reducers, ShareLanes) {
  for (const std::uint32_t threads : {1u, 3u})
    for (const std::uint32_t max_sms : {0u, 1u}) {
      ReducedRanks machine(
          2, {.lanes = 5, .max_sms = max_sms, .threads = {.threads = threads, .spin_us = 50, .nap_us = 20}});
      check(machine, all_reduces());
    }
}

/// The threads of a rank whose GPU first has other work sleep until it begins, even if the others are far ahead by
/// then.
TEST(Reducers, WaitForLateRanks) {
  ReducedRanks machine(3, {.threads = {.threads = 2, .spin_us = 0, .nap_us = 20}});
  check(machine, {all_reduce(1, 90'000), all_reduce(2, 3), all_reduce(3, 4000), all_reduce(4, 90'000)}, 20ms);
}

/// GPUs begin just when threads go to sleep: no thread may keep sleeping when others have found a chunk.
TEST(Reducers, WakeOneAnother) {
  for (const std::uint32_t spin_us : {100u, 1000u, 5000u}) {
    ReducedRanks machine(2, {.lanes = 2, .threads = {.threads = 2, .spin_us = spin_us, .nap_us = 20}});
    std::vector<CollectiveCase> cases;
    for (int i = 0; i < 60; ++i) cases.push_back(all_reduce(cases.size(), 3000));
    check(machine, cases, std::chrono::milliseconds(spin_us / 1000));
  }
}

/// Some ranks have captured calls that others make directly, and nothing announces when a graph is launched: also after
/// long pauses, in which threads sleep.
TEST(Reducers, CarryGraphs) {
  for (const std::uint32_t threads : {1u, 2u}) {
    ReducedRanks machine(3, {.threads = {.threads = threads, .spin_us = 50, .nap_us = 20}});
    check(machine, all_reduces(), 3ms,
          [](std::uint32_t rank, std::size_t call) { return rank == 0 || (rank == 1 && call % 3 == 1); });
  }
}

/// Blocks whose SMs are busy send long after the others, when the threads of their lanes have gone to sleep.
TEST(Reducers, WakeForLanesThatComeLate) {
  constexpr std::uint32_t ranks = 2, lanes = 4;
  for (const bool captures : {false, true}) {
    ReducedRanks machine(ranks, {.lanes = lanes, .threads = {.threads = 2, .spin_us = 0, .nap_us = 20}});
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        CollectiveCase c;
        c.type = DataType::int32;
        c.count = 4000;
        for (int turn = 1; turn < 4; ++turn) {
          std::vector<std::int32_t> input(c.count, turn), output(c.count, -1);
          Call call = call_of(c, nullptr, nullptr, Bytes(8));
          call.send = input.data();
          call.receive = output.data();
          machine.run_in_pauses(rank, call, 5ms, captures);
          EXPECT_EQ(output, std::vector<std::int32_t>(c.count, turn * static_cast<int>(ranks)));
        }
      });
  }
}

TEST(Reducers, NameWhomTheyWaitFor) {
  ReducedRanks machine(3, {.timeout_ns = 30'000'000});
  std::vector<std::jthread> threads;
  for (const std::uint32_t rank : {0u, 2u})
    threads.emplace_back([&, rank] {
      Bytes data(4000);
      CollectiveCase c;
      c.count = 1000;
      machine.run(rank, call_of(c, data.data(), data.data(), Bytes(8)));
      EXPECT_EQ(machine.mailbox(rank).event, kernels::Mailbox::Event::timeout);
      EXPECT_EQ(machine.mailbox(rank).peer, 77u);
    });
  threads.clear();
  for (const std::uint32_t rank : {0u, 2u}) EXPECT_EQ(machine.reducers(rank).awaited_rank(), 1u);
}

TEST(Reducers, NameTheRankWhoseThreadsStandStill) {
  ReducedRanks machine(3, {.timeout_ns = 30'000'000});
  check(machine, {all_reduce(0, 30'000)}, std::chrono::milliseconds(1));
  for (const std::uint32_t rank : {0u, 1u, 2u}) EXPECT_EQ(machine.reducers(rank).awaited_rank(), std::nullopt);
  machine.reducers(2).abort();
  std::vector<std::jthread> threads;
  for (const std::uint32_t rank : {0u, 1u, 2u})
    threads.emplace_back([&, rank] {
      const CollectiveCase c = all_reduce(1, 30'000);
      Bytes data(c.count * size_bytes(c.type));
      machine.run(rank, call_of(c, data.data(), data.data(), Bytes(8)));
    });
  threads.clear();
  for (const std::uint32_t rank : {0u, 1u}) EXPECT_EQ(machine.reducers(rank).awaited_rank(), 2u);
}

/// Ranks whose calls differ get none of one another's data, and no result.
TEST(Reducers, DoNotMixCallsThatDiffer) {
  ReducedRanks machine(2, {.timeout_ns = 50'000'000});
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      CollectiveCase c;
      c.count = 1000 + rank;
      Bytes input(4 * c.count, std::byte{1}), output(4 * c.count, poison);
      machine.run(rank, call_of(c, input.data(), output.data(), Bytes(8)));
      EXPECT_EQ(machine.mailbox(rank).event, kernels::Mailbox::Event::timeout);
      EXPECT_EQ(output, Bytes(4 * c.count, poison));
    });
}

/// Whether asleep or in short naps, a rank's threads end after an abort, and when the communicator fails. Threads of
/// another rank, which are between reductions, keep sleeping.
TEST(Reducers, EndWhenAborted) {
  for (const bool fails : {false, true})
    for (const bool has_begun : {false, true}) {
      ReducedRanks machine(2, {.threads = {.threads = 2, .spin_us = 0, .nap_us = 20}, .timeout_ns = 30'000'000});
      EXPECT_TRUE(await_adding_threads(4));
      CollectiveCase c;
      c.count = 1000;
      Bytes data(4000);
      if (has_begun)
        machine.run(0, call_of(c, data.data(), data.data(), Bytes(8)));
      else
        machine.reducers(0).expect({nullptr, 4000, 4096, 1, 1});
      if (fails)
        machine.failed = true;
      else
        machine.reducers(0).abort();
      EXPECT_TRUE(await_adding_threads(2)) << (fails ? "failed" : "aborted") << (has_begun ? ", has begun" : "");
    }
}

/// Headers, results and uploads do not overlap, and the same offset leads from either header of a ring to its slots.
TEST(ReducerMemory, HasPlaceForEverything) {
  struct Shape {
    std::uint32_t ranks, meetings;  ///< `meetings`: number of groups of ranks of islands that share the memory
  };
  for (const auto& [ranks, meetings] :
       {Shape{2, 1}, Shape{3, 1}, Shape{10, 1}, Shape{16, 1}, Shape{2, 8}, Shape{3, 5}, Shape{4, 4}, Shape{8, 2}}) {
    const ReducerMemory layout = ReducerMemory::of(ranks, ReducerMemory::budget_bytes / meetings);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(layout.down(rank) + layout.slots_offset(rank), layout.results());
      EXPECT_EQ(layout.up(rank) + layout.slots_offset(rank), layout.uploads(rank));
      EXPECT_GE(layout.slots_offset(rank), ReducerMemory::header_bytes);
      EXPECT_GE(layout.up(rank),
                rank == 0 ? layout.results() + layout.slots_bytes() : layout.uploads(rank - 1) + layout.slots_bytes());
      EXPECT_EQ(layout.up(rank) % 4096, 0u);
    }
    EXPECT_LE(meetings * layout.size_bytes(), ReducerMemory::budget_bytes);
    EXPECT_EQ(layout.size_bytes() % 4096, 0u);
    EXPECT_GE(layout.slot_bytes, 4096u);
  }
}

cpu_set_t cores_of(pid_t thread) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  EXPECT_EQ(sched_getaffinity(thread, sizeof cores, &cores), 0);
  return cores;
}

/// Threads run on the named cores, whatever cores the creating thread is bound to. Cores that do not exist are an
/// error.
TEST(CpuReducers, RunWhereTheyAreToldTo) {
  const cpu_set_t all = cores_of(0);
  std::vector<std::uint32_t> cores;
  for (std::uint32_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all)) cores.push_back(core);
  if (cores.size() < 2) GTEST_SKIP() << "needs two cores";
  cpu_set_t one, other;
  CPU_ZERO(&one);
  CPU_SET(cores.front(), &one);
  CPU_ZERO(&other);
  CPU_SET(cores.back(), &other);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  for (const bool named : {false, true}) {
    cpu_reducers::Options options{.threads = 3};
    if (named) options.cores = {cores.back()};
    ReducedRanks machine(2, {.threads = options});
    EXPECT_TRUE(await_adding_threads(6));
    for (const pid_t thread : adding_threads()) {
      const cpu_set_t own = cores_of(thread);
      EXPECT_TRUE(CPU_EQUAL(&own, named ? &other : &one)) << (named ? "named" : "inherited");
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  cpu_reducers::LaneReducers::Setup setup;
  setup.layout = ReducerMemory::of(2);
  setup.options = {.threads = 1, .cores = {CPU_SETSIZE - 1}};
  setup.has_failed = [] { return true; };
  cpu_reducers::LaneReducers reducers(std::move(setup));
  const Status started = reducers.start();
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("STRAIT_CPU_REDUCER_CORES"), std::string::npos);
  // With islands, a rank's place in the layout differs from its rank in the communicator, which callers name.
  EXPECT_EQ(started.error().message.find(" rank "), std::string::npos) << started.error().message;
}

}  // namespace
}  // namespace strait::testing
