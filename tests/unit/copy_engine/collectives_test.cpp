// Every collective that only copies, with every type, on ranks that are threads, compared bit by bit with plain loops.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cases.hpp"
#include "machine.hpp"
#include "support/random_data.hpp"
#include "support/reference.hpp"

namespace strait::testing {
namespace {

using copy_engine::CopyCall;
using copy_engine::StagedOptions;

struct Setting {
  std::uint32_t ranks;
  StagedOptions options;
  bool one_queue = false;
  bool slow = true;
  std::size_t most_bytes = 90'000;
};

/// Returns a case of a collective that staged copies support.
Case make_copying_case(std::uint64_t seed, std::uint32_t ranks, std::size_t most_bytes) {
  while (true) {
    Case c = make_case(seed = mix(seed), ranks, most_bytes);
    if (copy_engine::Rounds::supports(c.collective)) return c;
  }
}

/// Runs groups of calls. The calls of a group are enqueued at once, and only the last is waited for.
void run_cases(const Setting& setting, std::uint64_t seed, int groups, std::size_t calls_in_a_group) {
  Machine machine(setting.ranks, 6 << 20);
  std::vector<std::vector<Case>> cases(static_cast<std::size_t>(groups));
  for (auto& group : cases)
    while (group.size() < calls_in_a_group)
      group.push_back(make_copying_case(seed = mix(seed), setting.ranks, setting.most_bytes));
  as_threads(setting.ranks, [&](std::uint32_t number) {
    Rank rank(machine, number, setting.options,
              {.seed = seed + number, .one_queue = setting.one_queue, .slow = setting.slow});
    for (const auto& group : cases) {
      std::vector<std::unique_ptr<Buffers>> buffers;
      for (const Case& c : group) {
        buffers.push_back(std::make_unique<Buffers>(c, number, setting.ranks));
        const Status done = rank.copies->enqueue(buffers.back()->call(), rank.stream);
        ASSERT_TRUE(done) << done.error().message;
      }
      rank.driver->finish(rank.stream);
      EXPECT_FALSE(rank.copies->wait());
      for (const auto& buffer : buffers) buffer->check();
    }
  });
}

/// Whether many calls can be run: the thread sanitizer makes them tens of times slower.
constexpr bool has_time = !one_view;

TEST(StagedCollectives, HaveTheBitsOfAPlainLoop) {
  for (std::uint32_t ranks = 2; ranks <= 5; ++ranks)
    for (std::uint32_t depth = 1; depth <= 4; ++depth) {
      SCOPED_TRACE("ranks " + std::to_string(ranks) + " depth " + std::to_string(depth));
      run_cases({.ranks = ranks, .options = small_options(depth)}, mix(ranks * 16 + depth), has_time ? 6 : 1, 5);
    }
}

TEST(StagedCollectives, NeedOnlyOneHardwareQueue) {
  for (const std::uint32_t ranks : {2u, 4u})
    for (std::uint32_t depth = 1; depth <= 5; ++depth) {
      SCOPED_TRACE("ranks " + std::to_string(ranks) + " depth " + std::to_string(depth));
      run_cases({.ranks = ranks, .options = small_options(depth), .one_queue = true}, mix(ranks * 32 + depth),
                has_time ? 3 : 1, 6);
    }
}

TEST(StagedCollectives, KeepTheirOrderAtFullSpeed) {
  run_cases({.ranks = 3, .options = small_options(), .slow = false, .most_bytes = 300'000}, 7, has_time ? 10 : 2, 8);
}

/// Inputs that earlier work on the user's stream has yet to produce, and outputs that later work on it reads.
TEST(StagedCollectives, FollowAndPrecedeTheUsersWork) {
  Machine machine(2, 4 << 20);
  const std::size_t count = 50'000;
  as_threads(2, [&](std::uint32_t number) {
    Rank rank(machine, number, small_options(), {.seed = number});
    std::vector<std::int32_t> values(count, 0), results(2 * count, 0), copied;
    rank.driver->run(rank.stream, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      std::fill(values.begin(), values.end(), 21 + number);
    });
    const CopyCall call{.collective = Collective::all_gather,
                        .type = DataType::int32,
                        .count = count,
                        .send = values.data(),
                        .receive = results.data()};
    ASSERT_TRUE(rank.copies->enqueue(call, rank.stream));
    rank.driver->run(rank.stream, [&] {
      copied = results;
      std::fill(values.begin(), values.end(), 0);  // as if the program reused its input buffer
    });
    rank.driver->finish(rank.stream);
    std::vector<std::int32_t> expected(count, 21);
    expected.resize(2 * count, 22);
    EXPECT_EQ(copied, expected);
  });
}

/// Counters wrap beyond 32 bits, as they do in memory that has been in use for long.
TEST(StagedCollectives, CountersMayWrap) {
  Machine machine(2, 4 << 20);
  const StagedOptions options = small_options();
  Rank ranks[] = {Rank(machine, 0, options, {.seed = 0}), Rank(machine, 1, options, {.seed = 1})};
  const std::uint64_t near_wrap = 0xffff'ffff - 20;
  for (Rank& rank : ranks) {
    rank.copies->start_from(near_wrap - near_wrap % options.depth);
    EXPECT_FALSE(rank.copies->wait());
  }
  as_threads(2, [&](std::uint32_t number) {
    Rank& rank = ranks[number];
    for (std::uint64_t seed = 100; seed < 112; ++seed) {
      const Case c = make_copying_case(seed, 2, 60'000);
      Buffers buffers(c, number, 2);
      ASSERT_TRUE(rank.copies->enqueue(buffers.call(), rank.stream));
      rank.driver->finish(rank.stream);
      EXPECT_FALSE(rank.copies->wait());
      buffers.check();
    }
  });
}

TEST(StagedCollectives, CommandsARoundAreFew) {
  Machine machine(2, 6 << 20);
  as_threads(2, [&](std::uint32_t number) {
    Rank rank(machine, number, small_options(), {.slow = false});
    constexpr std::size_t count = 64 * (64 << 10);
    Bytes data(2 * count);
    const CopyCall call{.collective = Collective::all_gather,
                        .type = DataType::int8,
                        .count = count,
                        .send = data.data() + number * count,
                        .receive = data.data()};
    ASSERT_TRUE(rank.copies->supports(call));
    const int before = rank.driver->commands();
    ASSERT_TRUE(rank.copies->enqueue(call, rank.stream));
    EXPECT_LE(rank.driver->commands() - before, 4 * 64 + 12);
    rank.driver->finish(rank.stream);
    std::uint32_t rounds = 0;
    std::memcpy(&rounds, machine.host() + rank.copies->windows().begun(number), sizeof rounds);
    EXPECT_EQ(rounds, 64u);
  });
}

}  // namespace
}  // namespace strait::testing
