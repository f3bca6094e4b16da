#include "select/measured_rate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <random>
#include <thread>

namespace strait {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
constexpr std::size_t mb = std::size_t{1} << 20;
constexpr std::uint32_t fails = 0;

/// All ranks of a machine on one thread: the code under test acts as rank 0, and the other ranks answer in turn.
struct Machine {
  /// Returns how long (ns) copies of so many bytes take on a rank in a round, or `fails`.
  std::function<double(std::uint32_t rank, std::size_t round, std::size_t bytes)> time_ns;
  std::uint32_t ranks = 4;
  std::vector<std::size_t> copied{};  ///< bytes of each of rank 0's rounds
  std::size_t rounds = 0;             ///< rounds for which ranks have met
  double spent_ms = 0;                ///< sum of each round's slowest time

  std::uint32_t word(std::uint32_t rank, std::size_t bytes) const {
    return static_cast<std::uint32_t>(std::min(time_ns(rank, rounds, bytes), 4e9));
  }
  MeasuredExchange measure() {
    std::size_t bytes = 0;
    const auto copy = [&](std::size_t of) -> Result<std::chrono::nanoseconds> {
      copied.push_back(bytes = of);
      if (word(0, of) == fails) return fail(Code::cuda_error, "no copy engine");
      return std::chrono::nanoseconds(word(0, of));
    };
    const auto gather = [&](std::uint32_t own) -> Result<std::vector<std::uint32_t>> {
      std::vector<std::uint32_t> words{own};
      for (std::uint32_t rank = 1; rank < ranks; ++rank) words.push_back(word(rank, bytes));
      spent_ms += *std::max_element(words.begin(), words.end()) / 1e6;
      ++rounds;
      return words;
    };
    auto measured = measure_exchange(copy, gather);
    EXPECT_TRUE(measured);
    return std::move(*measured);
  }
};

double ns_at(double gbps, std::size_t bytes) { return static_cast<double>(bytes) / gbps; }

TEST(MeasuredExchange, GrowsUntilARoundTakesLongEnough) {
  for (const auto& [gbps, bytes] : {std::pair(50.0, 16 * mb), {25.0, 16 * mb}, {4.4, 16 * mb}, {0.6, 2 * mb}}) {
    Machine machine{[gbps = gbps](auto, auto, std::size_t of) { return 5'000 + ns_at(gbps, of); }};
    const MeasuredExchange measured = machine.measure();
    EXPECT_EQ(measured.bytes, bytes) << gbps;
    EXPECT_NEAR(measured.gbps, gbps, 0.02 * gbps) << "what a copy costs apart from bytes counts little";
    EXPECT_EQ(measured.ranks, 4u);
    EXPECT_TRUE(measured.own);
    EXPECT_EQ(std::count(machine.copied.begin(), machine.copied.end(), bytes), 4) << gbps;
  }
}

/// Ten GPUs behind ports of 0.3 GB/s in all are the slowest machine that is to be expected.
TEST(MeasuredExchange, IsShortOnSlowLinks) {
  for (const double gbps : {50.0, 12.0, 3.0, 1.1, 0.6, 0.53, 0.3, 0.27, 0.06}) {
    Machine machine{[&](auto, auto, std::size_t of) { return ns_at(gbps, of); }};
    EXPECT_NEAR(machine.measure().gbps, gbps, 1e-3 * gbps);
    EXPECT_LT(machine.spent_ms, 36) << gbps;
    if (gbps >= 0.3) {
      EXPECT_LT(machine.spent_ms, 25) << gbps;
    }
  }
  Machine stuck{[&](auto, auto, std::size_t of) { return ns_at(0.011, of); }};
  stuck.measure();
  EXPECT_EQ(stuck.rounds, 3u) << "one to begin with, and two that count";
}

TEST(MeasuredExchange, IsTheSlowestRanksBestRound) {
  // Disturbances hit each rank in different rounds; the last rank has half the rate of the others.
  Machine machine{[](std::uint32_t rank, std::size_t round, std::size_t of) {
    return ns_at(rank == 3 ? 6 : 12, of) * (round % 4 == rank ? 3 : 1.01 + 0.01 * static_cast<double>(round));
  }};
  const MeasuredExchange measured = machine.measure();
  EXPECT_LT(measured.gbps, 6);
  EXPECT_GT(measured.gbps, 5);
}

/// Rounds are compared with one another, so their size stays the same once one has counted.
TEST(MeasuredExchange, GrowsNoMoreAfterALongRound) {
  Machine machine{[](auto, std::size_t round, std::size_t of) { return ns_at(round == 1 ? 0.1 : 3, of); }};
  const MeasuredExchange measured = machine.measure();
  EXPECT_EQ(measured.bytes, mb / 2);
  EXPECT_THAT(machine.copied, Each(mb / 2));
  EXPECT_NEAR(measured.gbps, 3, 1e-3);
}

/// In the first round, late ranks leave the links to the others, so it does not count.
TEST(MeasuredExchange, TakesNothingFromTheFirstRound) {
  Machine machine{[](auto, std::size_t round, std::size_t of) { return ns_at(round == 0 ? 3 : 0.3, of); }};
  EXPECT_NEAR(machine.measure().gbps, 0.3, 1e-3);
}

TEST(MeasuredExchange, GoesOnWithoutARankThatFails) {
  for (const std::size_t from : {0, 1, 4}) {
    const auto times = [&](std::uint32_t broken) {
      return [=](std::uint32_t rank, std::size_t round, std::size_t of) {
        return rank == broken && round >= from ? fails : ns_at(3 + rank, of);
      };
    };
    Machine other{times(1)};
    const MeasuredExchange measured = other.measure();
    EXPECT_TRUE(measured.own);
    EXPECT_EQ(measured.ranks, 3u);
    EXPECT_NEAR(measured.gbps, 3, 1e-3);
    Machine own{times(0)};
    const MeasuredExchange without = own.measure();
    ASSERT_FALSE(without.own);
    EXPECT_THAT(without.own.error().message, HasSubstr("no copy engine"));
    EXPECT_EQ(own.copied.size(), from + 1) << "it does not try again";
    EXPECT_GT(own.rounds, from + 1) << "but meets the others";
  }
  Machine nobody{[](auto, auto, auto) { return fails; }};
  const MeasuredExchange nothing = nobody.measure();
  EXPECT_EQ(nothing.gbps, 0);
  EXPECT_EQ(nothing.ranks, 0u);
  EXPECT_EQ(nobody.rounds, 2u);
}

TEST(MeasuredExchange, IsUnknownWhereAllIsHeldUp) {
  Machine machine{[](auto, auto, auto) { return 1e9; }};
  EXPECT_EQ(machine.measure().gbps, 0);
}

TEST(MeasuredExchange, EndsWithTheChannel) {
  int copies = 0, meetings = 0;
  const auto copy = [&](std::size_t) -> Result<std::chrono::nanoseconds> {
    ++copies;
    return std::chrono::nanoseconds(1'000'000);
  };
  const auto gather = [&](std::uint32_t word) -> Result<std::vector<std::uint32_t>> {
    if (++meetings == 3) return fail(Code::remote_error, "rank 1 is gone");
    return std::vector<std::uint32_t>{word, word};
  };
  const auto measured = measure_exchange(copy, gather);
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().message, "rank 1 is gone");
  EXPECT_EQ(copies, 3);
}

/// Each rank measures different times with much noise, but all ranks compute the same result to the last bit.
TEST(MeasuredExchange, RanksAgree) {
  constexpr std::uint32_t ranks = 5;
  for (int turn = 0; turn < 20; ++turn) {
    std::barrier meeting(ranks);
    std::vector<std::uint32_t> words(ranks);
    std::vector<double> gbps(ranks);
    std::vector<std::size_t> rounds(ranks);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        std::mt19937 random(static_cast<unsigned>(turn * 100) + rank);
        std::lognormal_distribution<double> noise(0, 1);
        const auto copy = [&](std::size_t bytes) -> Result<std::chrono::nanoseconds> {
          if (rank == 4 && rounds[rank] == 3) return fail(Code::cuda_error, "none");
          return std::chrono::nanoseconds(static_cast<std::int64_t>(ns_at(2, bytes) * noise(random)));
        };
        const auto gather = [&](std::uint32_t word) -> Result<std::vector<std::uint32_t>> {
          words[rank] = word;
          ++rounds[rank];
          meeting.arrive_and_wait();
          const std::vector<std::uint32_t> all = words;
          meeting.arrive_and_wait();
          return all;
        };
        gbps[rank] = measure_exchange(copy, gather)->gbps;
      });
    threads.clear();
    EXPECT_THAT(gbps, Each(gbps[0]));
    EXPECT_THAT(rounds, Each(rounds[0]));
    EXPECT_GT(gbps[0], 0);
  }
}

TEST(MeasuredRates, CountWhereTheyAreClearlyLess) {
  const auto used = [](ExchangeRates known, double measured) { return with_measured(known, measured).gbps; };
  const ExchangeRates links{.gbps = 12, .sums_gbps = 30};
  EXPECT_EQ(used(links, 0.6), 0.6);
  EXPECT_EQ(used(links, 5.9), 5.9);
  EXPECT_EQ(used(links, 6.1), 12) << "noise";
  EXPECT_EQ(used(links, 50), 12) << "nothing raises a rate";
  EXPECT_EQ(used(links, 0), 12) << "unknown";
  const ExchangeRates fixed{.gbps = 12, .is_fixed_by_user = true};
  EXPECT_EQ(used(fixed, 0.6), 12);
  EXPECT_EQ(used({}, 21), 0) << "what is unknown stands for PCIe Gen5";
  EXPECT_EQ(used({}, 19), 19);
  EXPECT_EQ(with_measured(links, 9).measured_gbps, 9);
  EXPECT_EQ(with_measured(links, 0.6).sums_gbps, 30);
}

TEST(MeasuredRates, AreTold) {
  const MeasuredExchange measured{.gbps = 0.6, .ranks = 9, .bytes = 2 * mb, .own = {}};
  EXPECT_EQ(describe(measured, {.gbps = 12}, 10),
            "each GPU exchanges 0.6 GB/s each way while all do (measured by 9 of 10 ranks, 2.0 MB); otherwise known: "
            "12. Calls are cut for 0.6 GB/s");
  EXPECT_THAT(describe({.gbps = 11, .ranks = 10, .bytes = mb, .own = {}}, {.gbps = 12}, 10),
              HasSubstr("exchanges 11 GB/s"));
  EXPECT_THAT(describe({.gbps = 11, .ranks = 10, .bytes = mb, .own = {}}, {.gbps = 12}, 10),
              HasSubstr("cut for 12 GB/s"));
  EXPECT_THAT(describe({}, {}, 10), AllOf(HasSubstr("could not be measured"), HasSubstr("otherwise nothing is known"),
                                          HasSubstr("cut for 40 GB/s")));
}

}  // namespace
}  // namespace strait
