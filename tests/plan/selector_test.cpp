#include "select/selector.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.hpp"

namespace strait {
namespace {

using testing::HasSubstr;

Selector::Settings settings_for(std::uint32_t ranks) {
  Selector::Settings settings;
  settings.model = host_model(ranks, 4);
  return settings;
}

SelectQuery all_reduce_of(std::size_t count) { return {.op = ReduceOp::sum, .count = count}; }

TEST(Selector, RemembersWhatItChose) {
  Selector selector(settings_for(4));
  const auto first = selector.choose(all_reduce_of(1000));
  ASSERT_TRUE(first) << first.error().message;
  const Choice* const small = *first;
  const auto large = selector.choose(all_reduce_of(10'000'000));
  ASSERT_TRUE(large);
  EXPECT_NE(*large, small);
  const auto again = selector.choose(all_reduce_of(1000));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, small);
}

/// With many ranks, selection uses only the paths from rank 0. It must choose as with all paths, here between two
/// hosts.
TEST(Selector, ManyRanksNeedNoTableOfPairs) {
  constexpr std::uint32_t ranks = 64;
  const auto between_hosts = [](ClockModel& model) {
    for (std::size_t path = 0; path < model.paths.size(); ++path)
      if ((path / ranks < ranks / 2) != (path % ranks < ranks / 2)) model.paths[path] = {20, 3, {}};
  };
  Selector::Settings all = settings_for(ranks), needed = all;
  needed.model = host_model(ranks, 4, {}, Selector::writers_in_model(ranks));
  EXPECT_EQ(needed.model.paths.size(), ranks);
  between_hosts(all.model), between_hosts(needed.model);
  Selector by_all(all), by_needed(needed);
  for (const std::size_t count : {std::size_t{10}, std::size_t{100'000}, std::size_t{10'000'000}}) {
    const auto one = by_all.choose(all_reduce_of(count)), other = by_needed.choose(all_reduce_of(count));
    ASSERT_TRUE(one && other);
    EXPECT_EQ((*one)->algorithm, (*other)->algorithm);
    EXPECT_EQ((*one)->predicted_us, (*other)->predicted_us);
  }
}

TEST(Selector, DistinguishesAllThatChoicesDependOn) {
  Selector selector(settings_for(4));
  SelectQuery query = all_reduce_of(1000);
  const auto floats = selector.choose(query);
  ASSERT_TRUE(floats);
  const Choice of_floats = **floats;
  query.type = DataType::int32;
  const auto integers = selector.choose(query);
  ASSERT_TRUE(integers);
  EXPECT_GT((*integers)->alternatives.size(), of_floats.alternatives.size());
  query.peer_memory = true;
  const auto peers = selector.choose(query);
  ASSERT_TRUE(peers);
  EXPECT_GT((*peers)->alternatives.size(), of_floats.alternatives.size());
}

/// The call's algorithm also replaces the lanes and slices of the settings, which were meant for another algorithm.
TEST(Selector, ACallOverrulesTheTuningFileAndTheEnvironment) {
  Selector::Settings settings = settings_for(4);
  settings.tuning = parse_tuning(
      "[[override]]\ncollective = \"all-reduce\"\nalgorithm = \"ring\"\nslice_bytes = \"16K\"\n", "t.toml");
  ASSERT_TRUE(settings.tuning.problems.empty());
  SelectQuery query = all_reduce_of(10'000'000);
  Selector tuned(settings);
  EXPECT_EQ((*tuned.choose(query))->algorithm, "ring");
  EXPECT_EQ((*tuned.choose(query))->slice_bytes, 16U << 10);
  settings.options.algorithm = "tree";
  query.algorithm = find_algorithm("two_hop");
  Selector asked(settings), free(settings_for(4));
  EXPECT_EQ((*asked.choose(query))->algorithm, "two_hop");
  EXPECT_EQ((*asked.choose(query))->slice_bytes, (*free.choose(query))->slice_bytes);
  EXPECT_NE((*asked.choose(query))->slice_bytes, 16U << 10);
}

TEST(Selector, ChoosesAsWithoutMemory) {
  Selector selector(settings_for(8));
  for (const std::size_t count : {1U, 1000U, 100'000U, 10'000'000U}) {
    const SelectQuery query = all_reduce_of(count);
    const auto remembered = selector.choose(query);
    const auto fresh = choose(selector.request(query), query.type, query.op, count, host_model(8, 4));
    ASSERT_TRUE(remembered && fresh);
    EXPECT_EQ((*remembered)->algorithm, fresh->algorithm);
    EXPECT_EQ((*remembered)->slice_bytes, fresh->slice_bytes);
  }
}

TEST(Selector, ManyRanksAreEstimated) {
  Selector selector(settings_for(200));
  const auto choice = selector.choose(all_reduce_of(1 << 20));
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_GT((*choice)->predicted_us, 0);
}

TEST(Selector, OverridesHoldWhereTheyFit) {
  Selector::Settings settings = settings_for(4);
  settings.tuning = parse_tuning(R"(
    [[override]]
    collective = "all-reduce"
    min_bytes = "16K"
    max_bytes = "1M"
    algorithm = "ring"
    slice_bytes = "32K"
    lanes = 2
  )",
                                 "t.toml");
  ASSERT_TRUE(settings.tuning.problems.empty());
  Selector selector(settings);
  const auto small = selector.choose(all_reduce_of(1000));
  ASSERT_TRUE(small);
  EXPECT_NE((*small)->algorithm, "ring");
  const auto middle = selector.choose(all_reduce_of(10'000));
  ASSERT_TRUE(middle);
  EXPECT_EQ((*middle)->algorithm, "ring");
  EXPECT_EQ((*middle)->slice_bytes, 32U << 10);
  EXPECT_EQ((*middle)->lanes, 2U);
}

TEST(Selector, TheEnvironmentComesBeforeTheFile) {
  Selector::Settings settings = settings_for(4);
  settings.options.algorithm = "tree";
  settings.tuning = parse_tuning("[[override]]\ncollective = \"all-reduce\"\nalgorithm = \"ring\"\n", "t.toml");
  Selector selector(settings);
  const auto choice = selector.choose(all_reduce_of(1000));
  ASSERT_TRUE(choice);
  EXPECT_EQ((*choice)->algorithm, "tree");
}

TEST(Selector, AnAlgorithmThatCannotDoACallIsLeftAside) {
  Selector::Settings settings = settings_for(4);
  settings.options.algorithm = "tree";
  Selector selector(settings);
  SelectQuery query = all_reduce_of(1000);
  query.collective = Collective::all_gather;
  const auto choice = selector.choose(query);
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_NE((*choice)->algorithm, "tree");
}

TEST(Selector, WarnsOnceOfAnOverrideThatIsSlower) {
  Selector::Settings settings = settings_for(4);
  settings.warns = true;
  settings.tuning = parse_tuning("\n[[override]]\ncollective = \"all-reduce\"\nalgorithm = \"ring\"\n", "t.toml");
  Selector selector(settings);
  set_log_level(LogLevel::warn);
  testing::internal::CaptureStderr();
  for (const std::size_t count : {100U, 200U, 100U}) ASSERT_TRUE(selector.choose(all_reduce_of(count)));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("t.toml:2 asks for ring"));
  EXPECT_THAT(said, HasSubstr("the choice would be one_hop"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

}  // namespace
}  // namespace strait
