// Every collective, type and operation, on ranks that are threads, against plain loops, bit by bit.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "cases.hpp"
#include "machine.hpp"
#include "support/random_data.hpp"
#include "support/reference.hpp"

namespace strait::testing {
namespace {

using staged::StagedCall;
using staged::StagedOptions;

struct Setting {
  std::uint32_t ranks;
  StagedOptions options;
  bool one_queue = false;
  bool slow = true;
  std::size_t most_bytes = 90'000;
};

/// Calls in groups that are enqueued at once, of which only the last is waited for.
void run_cases(const Setting& setting, std::uint64_t seed, int groups, int calls_in_a_group) {
  Machine machine(setting.ranks, 6 << 20);
  std::vector<std::vector<Case>> cases(static_cast<std::size_t>(groups));
  for (auto& group : cases)
    for (int i = 0; i < calls_in_a_group; ++i)
      group.push_back(make_case(seed = mix(seed), setting.ranks, setting.most_bytes));
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
      for (const auto& buffer : buffers) buffer->check();
    }
  });
}

/// The thread sanitizer costs tens of times the time.
constexpr bool has_time = !one_view;

TEST(StagedCollectives, HaveTheBitsOfAPlainLoop) {
  for (std::uint32_t ranks = 2; ranks <= 5; ++ranks)
    for (std::uint32_t depth = 1; depth <= 4; ++depth) {
      SCOPED_TRACE("ranks " + std::to_string(ranks) + " depth " + std::to_string(depth));
      run_cases({.ranks = ranks, .options = small_options(1 + ranks % 3, depth)}, mix(ranks * 16 + depth),
                has_time ? 6 : 1, 5);
    }
}

TEST(StagedCollectives, NeedOnlyOneHardwareQueue) {
  for (const std::uint32_t ranks : {2u, 4u})
    for (std::uint32_t depth = 1; depth <= 5; ++depth) {
      SCOPED_TRACE("ranks " + std::to_string(ranks) + " depth " + std::to_string(depth));
      run_cases({.ranks = ranks, .options = small_options(2, depth), .one_queue = true}, mix(ranks * 32 + depth),
                has_time ? 3 : 1, 6);
    }
}

TEST(StagedCollectives, KeepTheirOrderAtFullSpeed) {
  run_cases({.ranks = 3, .options = small_options(3, 4), .slow = false, .most_bytes = 300'000}, 7, has_time ? 10 : 2,
            8);
}

/// Every type with every operation of the collective whose bits matter most.
TEST(StagedCollectives, ReduceEveryTypeAndOperation) {
  Machine machine(3, 4 << 20);
  std::vector<Case> cases;
  for (int type = 0; type < data_type_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op) {
      Case c{.type = static_cast<DataType>(type), .op = static_cast<ReduceOp>(op), .count = has_time ? 9001u : 1001u};
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        c.inputs.push_back(random_elements(c.type, c.count, rank + static_cast<unsigned>(type)));
        c.scalars.push_back(random_elements(c.type, 1, rank + static_cast<unsigned>(op)));
      }
      cases.push_back(std::move(c));
    }
  as_threads(3, [&](std::uint32_t number) {
    Rank rank(machine, number, small_options(), {.seed = number, .slow = false});
    for (const Case& c : cases) {
      Buffers buffers(c, number, 3);
      ASSERT_TRUE(rank.copies->enqueue(buffers.call(), rank.stream));
      rank.driver->finish(rank.stream);
      buffers.check();
    }
  });
}

/// Inputs that the user's stream has yet to make, and outputs that it goes on with.
TEST(StagedCollectives, FollowAndPrecedeTheUsersWork) {
  Machine machine(2, 4 << 20);
  const std::size_t count = 50'000;
  as_threads(2, [&](std::uint32_t number) {
    Rank rank(machine, number, small_options(), {.seed = number});
    std::vector<std::int32_t> values(count, 0), results(count, 0), copied(count, 0);
    rank.driver->run(rank.stream, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      std::fill(values.begin(), values.end(), 21);
    });
    const StagedCall call{.type = DataType::int32, .count = count, .send = values.data(), .receive = results.data()};
    ASSERT_TRUE(rank.copies->enqueue(call, rank.stream));
    rank.driver->run(rank.stream, [&] {
      copied = results;
      std::fill(values.begin(), values.end(), 0);  // as if the input were used again
    });
    rank.driver->finish(rank.stream);
    EXPECT_EQ(copied, std::vector<std::int32_t>(count, 42));
  });
}

/// Counters go on beyond 32 bits: memory that has been in use for long.
TEST(StagedCollectives, CountersMayWrap) {
  Machine machine(2, 4 << 20);
  const StagedOptions options = small_options(2, 4);
  Rank ranks[] = {Rank(machine, 0, options, {.seed = 0}), Rank(machine, 1, options, {.seed = 1})};
  const std::uint64_t near_wrap = 0xffff'ffff - 20;
  for (Rank& rank : ranks) rank.copies->start_from(near_wrap - near_wrap % options.depth);
  as_threads(2, [&](std::uint32_t number) {
    Rank& rank = ranks[number];
    for (std::uint64_t seed = 100; seed < 112; ++seed) {
      const Case c = make_case(seed, 2, 60'000);
      Buffers buffers(c, number, 2);
      ASSERT_TRUE(rank.copies->enqueue(buffers.call(), rank.stream));
      rank.driver->finish(rank.stream);
      buffers.check();
    }
  });
}

TEST(StagedCollectives, CommandsARoundAreFew) {
  Machine machine(2, 6 << 20);
  as_threads(2, [&](std::uint32_t number) {
    Rank rank(machine, number, small_options(), {.slow = false});
    Bytes data(64 * (64 << 10));
    const StagedCall call{.type = DataType::int8, .count = data.size(), .send = data.data(), .receive = data.data()};
    ASSERT_EQ(rank.copies->rounds(call), 64u);
    const int before = rank.driver->commands();
    ASSERT_TRUE(rank.copies->enqueue(call, rank.stream));
    EXPECT_LE(rank.driver->commands() - before, 4 * 64 + 12);
    rank.driver->finish(rank.stream);
  });
}

}  // namespace
}  // namespace strait::testing
