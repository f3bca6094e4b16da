// STRAIT_P2P, and how islands are formed from which ranks reach which.
#include "device/p2p_setting.hpp"

#include <gmock/gmock.h>

#include <bit>

#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(P2pSetting, WordsAndGroups) {
  EXPECT_EQ(parse_p2p("auto")->use, P2p::automatic);
  EXPECT_THAT(parse_p2p("auto")->groups, IsEmpty());
  EXPECT_EQ(parse_p2p("pcie")->use, P2p::pcie);
  EXPECT_EQ(parse_p2p("off")->use, P2p::off);
  EXPECT_THAT(parse_p2p("0-1,5-2-3")->groups, ElementsAre(Island{0, 1}, Island{2, 3, 5}));
  EXPECT_EQ(parse_p2p("0-1,2-3")->use, P2p::automatic);
  EXPECT_THAT(parse_p2p("pcie,0-1")->groups, ElementsAre(Island{0, 1}));
  EXPECT_EQ(parse_p2p("pcie,0-1")->use, P2p::pcie);
}

TEST(P2pSetting, ErrorsNameWhatIsWrong) {
  const std::pair<const char*, const char*> wrong[] = {
      {"0-1,1-2", "rank 1 is in two groups"},
      {"0-0", "rank 0 is twice in 0-0"},
      {"0-1,3", "rank 3 is alone in its group"},
      {"0-x", "\"x\" is no rank"},
      {"0-1,", "\"\" is no rank"},
      {"0--1", "\"\" is no rank"},
      {"on", "\"on\" is no rank"},
      {"0-1,off", "\"off\" is no rank"},
      {"0-99999999999", "\"99999999999\" is no rank"},
  };
  for (const auto& [text, problem] : wrong) {
    const auto setting = parse_p2p(text);
    ASSERT_FALSE(setting) << text;
    EXPECT_EQ(setting.error().code, Code::invalid_argument);
    EXPECT_THAT(setting.error().message, HasSubstr(problem));
    EXPECT_THAT(setting.error().message, HasSubstr("STRAIT_P2P=\"" + std::string(text) + "\""));
  }
}

TEST(P2pSetting, RanksMustExist) {
  EXPECT_TRUE(check_ranks(*parse_p2p("0-1,2-3"), 4));
  const Status checked = check_ranks(*parse_p2p("0-1,2-3"), 3);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr("names rank 3, and the communicator has 3 ranks, 0 to 2"));
}

/// A part of a communicator keeps the members of groups that it contains, under their new ranks.
TEST(P2pSetting, OfAPart) {
  const P2pSetting whole = *parse_p2p("0-1-2,3-4");
  EXPECT_THAT(part_of(whole, Island{2, 4, 0}).groups, ElementsAre(Island{0, 2}));
  EXPECT_EQ(part_of(whole, Island{2, 4, 0}).use, P2p::automatic);
  EXPECT_EQ(part_of(whole, Island{0, 3}).use, P2p::off) << "no groups would mean that all may";
  EXPECT_EQ(part_of(P2pSetting{}, Island{0, 3}).use, P2p::automatic);
}

TEST(Reach, IsWhatTheSettingAllows) {
  EXPECT_THAT(allowed_reach(P2pSetting{}, 3), ElementsAre(7, 7, 7));
  EXPECT_THAT(allowed_reach(*parse_p2p("off"), 3), ElementsAre(1, 2, 4));
  EXPECT_THAT(allowed_reach(*parse_p2p("0-2"), 3), ElementsAre(5, 2, 5));
  EXPECT_EQ(allowed_reach(P2pSetting{}, 32).back(), ~0u);
}

TEST(Reach, LosesWhatEitherEndMisses) {
  Reach reach = allowed_reach(P2pSetting{}, 3);
  EXPECT_TRUE(take_away(reach, Island{0, 0, 1 << 0}));  // rank 2 cannot reach rank 0
  EXPECT_THAT(reach, ElementsAre(3, 7, 6));
  EXPECT_FALSE(take_away(reach, Island{4, 0, 1}));
  EXPECT_FALSE(take_away(reach, Island{1, 2, 4})) << "a rank reaches itself";
}

TEST(IslandsOf, BridgedPairsWhateverTheirNumbers) {
  EXPECT_EQ(describe(islands_of(allowed_reach(*parse_p2p("0-1,2-3,4-5"), 6))), "0-1, 2-3, 4-5");
  EXPECT_EQ(describe(islands_of(allowed_reach(*parse_p2p("0-5,1-3"), 6))), "0-5, 1-3, 2, 4");
  EXPECT_EQ(describe(islands_of(allowed_reach(P2pSetting{}, 4))), "0-1-2-3");
  EXPECT_EQ(describe(islands_of(allowed_reach(*parse_p2p("off"), 3))), "0, 1, 2");
}

/// Rank 0 reaches 1, and 1 reaches 2, but 0 does not reach 2: no island may hold all three.
TEST(IslandsOf, ChainsAreNoIslands) {
  EXPECT_EQ(describe(islands_of(Reach{0b0011, 0b0111, 0b1110, 0b1100})), "0-1, 2-3");
  EXPECT_EQ(describe(islands_of(Reach{0b0001, 0b0111, 0b1110, 0b1100})), "0, 1-2, 3") << "one way only is no way";
}

/// Whether the driver grants access shows when memory is mapped; whether access works shows only when the resulting
/// islands are probed.
TEST(FindIslands, UntilNothingIsMissing) {
  const Reach granted = allowed_reach(*parse_p2p("0-1-2-3,4-5"), 6);
  const Reach works = allowed_reach(*parse_p2p("0-1,2-3"), 6);
  std::vector<std::string> attempts;
  std::string why;
  const auto islands = find_islands(allowed_reach(P2pSetting{}, 6), why, [&](std::span<const Island> tried) {
    attempts.push_back(describe(tried));
    Missing missing{{}, Reach(6)};
    for (const auto& [stage, reason] : {std::pair(granted, "not granted"), {works, "nothing arrives"}}) {
      for (const Island& island : tried)
        for (const std::uint32_t a : island)
          for (const std::uint32_t b : island)
            if (a < b && (stage[a] >> b & 1) == 0) missing.ranks[a] |= 1u << b;  // either end may notice
      if (missing.ranks == Reach(6)) continue;
      missing.works = fail(Code::unsupported, reason);
      break;
    }
    return Result<Missing>(missing);
  });
  ASSERT_TRUE(islands);
  EXPECT_EQ(describe(*islands), "0-1, 2-3, 4, 5");
  EXPECT_THAT(attempts, ElementsAre("0-1-2-3-4-5", "0-1-2-3, 4-5", "0-1, 2-3, 4, 5"));
  EXPECT_EQ(why, "nothing arrives");
}

TEST(FindIslands, EndsWhereThereAreNone) {
  std::string why = "before";
  int attempts = 0;
  const auto all_missing = [&](std::span<const Island> tried) -> Result<Missing> {
    ++attempts;
    return Missing{fail(Code::unsupported, "none works"), Reach(tried.front().size(), ~0u)};
  };
  EXPECT_EQ(find_islands(allowed_reach(P2pSetting{}, 3), why, all_missing).error().message, "none works");
  EXPECT_EQ(attempts, 1);
  EXPECT_EQ(find_islands(allowed_reach(*parse_p2p("off"), 3), why, all_missing).error().message, "none works");
  EXPECT_EQ(attempts, 1) << "nothing to try";
  // A failure that concerns no pair of ranks.
  const auto of_nobody = [&](std::span<const Island>) -> Result<Missing> {
    return Missing{fail(Code::unsupported, "no memory"), Reach(3)};
  };
  EXPECT_EQ(find_islands(allowed_reach(P2pSetting{}, 3), why, of_nobody).error().message, "no memory");
  const auto broken = [](std::span<const Island>) -> Result<Missing> {
    return fail(Code::remote_error, "a rank died");
  };
  EXPECT_EQ(find_islands(allowed_reach(P2pSetting{}, 3), why, broken).error().code, Code::remote_error);
  // A single rank is not a failure.
  const auto fine = [](std::span<const Island>) -> Result<Missing> { return Missing{{}, {0}}; };
  EXPECT_EQ(describe(*find_islands(allowed_reach(P2pSetting{}, 1), why, fine)), "0");
}

TEST(IslandsOf, AnyReachIsPartedIntoCliques) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const std::uint32_t ranks = 1 + mix(seed) % 16;
    Reach reach = allowed_reach(P2pSetting{}, ranks);
    Reach missing;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      missing.push_back(static_cast<std::uint32_t>(mix(seed * 64 + rank) & mix(seed * 64 + rank + 32) * (seed % 2)));
    take_away(reach, missing);
    std::uint32_t seen = 0;
    for (const Island& island : islands_of(reach))
      for (const std::uint32_t rank : island) {
        EXPECT_EQ(seen >> rank & 1, 0u);
        seen |= 1u << rank;
        for (const std::uint32_t other : island) EXPECT_NE(reach[rank] >> other & 1, 0u) << "seed " << seed;
      }
    EXPECT_EQ(std::popcount(seen), static_cast<int>(ranks));
  }
}

}  // namespace
}  // namespace strait::testing
