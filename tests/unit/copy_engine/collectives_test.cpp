// Every collective, type and operation, on ranks that are threads, against plain loops, bit by bit.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "machine.hpp"
#include "support/random_data.hpp"
#include "support/reference.hpp"

namespace strait::testing {
namespace {

using staged::StagedCall;
using staged::StagedOptions;

constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                      Collective::gather,     Collective::scatter};

/// What all ranks know of one call.
struct Case {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
  std::size_t count = 0;
  bool in_place = false;
  std::vector<Bytes> inputs, scalars;

  std::string text() const {
    return std::string(name(collective)) + " " + std::string(name(type)) + " " + std::string(name(op)) + " count " +
           std::to_string(count) + " root " + std::to_string(root) + (in_place ? " in place" : "");
  }
  Bytes expected(std::uint32_t rank) const {
    return reference_output(
        {.collective = collective, .type = type, .op = op, .root = root, .premul_scalars = scalars, .inputs = inputs},
        rank);
  }
};

Case make_case(std::uint64_t seed, std::uint32_t ranks, std::size_t most_bytes) {
  Case c;
  c.collective = collectives[mix(seed) % std::size(collectives)];
  c.type = static_cast<DataType>(mix(seed + 1) % data_type_count);
  c.op = static_cast<ReduceOp>(mix(seed + 2) % reduce_op_count);
  c.root = static_cast<std::uint32_t>(mix(seed + 3) % ranks);
  const std::size_t most = most_bytes / size_bytes(c.type);
  c.count = mix(seed + 4) % 4 == 0 ? 1 + mix(seed + 5) % 40 : 1 + mix(seed + 5) % most;
  c.in_place = mix(seed + 6) % 2 == 0;
  const bool blocks = c.collective == Collective::reduce_scatter || c.collective == Collective::all_to_all ||
                      c.collective == Collective::scatter;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    c.inputs.push_back(random_elements(c.type, c.count * (blocks ? ranks : 1), mix(seed + 7) + rank));
    c.scalars.push_back(random_elements(c.type, 1, mix(seed + 8) + rank));
  }
  return c;
}

/// A rank's buffers for a call, at odd addresses and with guards around the output.
class Buffers {
 public:
  Buffers(const Case& c, std::uint32_t rank, std::uint32_t ranks) : case_(c), rank_(rank) {
    const Bytes& input = c.inputs[rank];
    const std::size_t block = c.count * size_bytes(c.type);
    const bool gathers = c.collective == Collective::all_gather || c.collective == Collective::gather;
    const std::size_t output_bytes = gathers || c.collective == Collective::all_to_all ? ranks * block : block;
    const std::size_t own_input = gathers ? rank * block : 0;
    const std::size_t own_output =
        c.collective == Collective::reduce_scatter || c.collective == Collective::scatter ? rank * block : 0;
    send_.assign(
        guard + (c.in_place ? own_input + std::max(input.size(), output_bytes) + own_output : input.size()) + guard,
        fill);
    std::byte* const send = send_.data() + guard + (c.in_place ? own_input : 0);
    std::copy(input.begin(), input.end(), send);
    receive_.assign(guard + output_bytes + guard, fill);
    output_ = c.in_place ? send_.data() + guard + own_output : receive_.data() + guard;
    call_ = {.collective = c.collective,
             .type = c.type,
             .op = c.op,
             .root = c.root,
             .count = c.count,
             .send = send,
             .receive = output_};
    std::copy(c.scalars[rank].begin(), c.scalars[rank].end(), call_.premul_scalar.begin());
  }
  const StagedCall& call() const { return call_; }

  void check() const {
    const Bytes expected = case_.expected(rank_);
    EXPECT_EQ(first_difference(expected, {output_, expected.size()}, case_.type, case_.inputs), "")
        << case_.text() << " on rank " << rank_;
    if (case_.in_place) return;
    EXPECT_TRUE(std::equal(case_.inputs[rank_].begin(), case_.inputs[rank_].end(), send_.data() + guard));
    for (std::size_t i = 0; i < receive_.size(); ++i) {
      const bool is_output = i >= guard && i < guard + expected.size();
      ASSERT_TRUE(is_output || receive_[i] == fill)
          << case_.text() << ": wrote outside of the output of rank " << rank_;
    }
  }

 private:
  static constexpr std::size_t guard = 67;  // odd: no alignment is promised
  static constexpr std::byte fill{0xa5};
  const Case& case_;
  std::uint32_t rank_;
  Bytes send_, receive_;
  std::byte* output_ = nullptr;
  StagedCall call_;
};

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
