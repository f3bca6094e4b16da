#include "device/staging_budget.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "base/environment.hpp"
#include "executor/copy_engine/options.hpp"
#include "executor/copy_engine/windows.hpp"
#include "executor/cpu_reducers/reducer_memory.hpp"
#include "kernels/cut.hpp"
#include "kernels/layout.hpp"

namespace strait {
namespace {

constexpr std::size_t mb = std::size_t{1} << 20;

TEST(StagingBudget, AllTogetherIsNoMoreThanAllowed) {
  for (const std::size_t bytes : {96 * mb, 100 * mb, 128 * mb, 1024 * mb})
    for (const bool reducers : {false, true})
      for (const bool windows : {false, true}) {
        const auto budget = StagingBudget::of(bytes, reducers, windows);
        EXPECT_LE(budget.arenas_bytes + budget.reducers_bytes + budget.windows_bytes, bytes);
        EXPECT_EQ(budget.reducers_bytes != 0, reducers);
        EXPECT_EQ(budget.windows_bytes != 0, windows);
      }
}

TEST(StagingBudget, By128MegabytesIsWhatWasMeasured) {
  const auto budget = StagingBudget::of(128 * mb, true, false);
  EXPECT_EQ(budget.arenas_bytes, 60 * mb);
  EXPECT_EQ(budget.reducers_bytes, 64 * mb);
  EXPECT_EQ(StagingBudget::of(128 * mb, false, true).windows_bytes, 64 * mb);
}

TEST(StagingBudget, TheFirstHasAllAndLaterOnesLessThanHalfOfWhatIsLeft) {
  EXPECT_EQ(StagingBudget::left(128 * mb, 0, 4, false), 128 * mb);
  EXPECT_EQ(StagingBudget::left(128 * mb, 0, 4, true), 128 * mb);
  for (const bool others : {false, true}) {
    std::size_t pinned = 300 * mb;
    for (int communicator = 1; communicator < 4; ++communicator) {
      const std::size_t rest = 1024 * mb - pinned;
      const auto budget = StagingBudget::of(StagingBudget::left(1024 * mb, pinned, 4, others), others, false);
      EXPECT_LT(budget.total_bytes(), rest / 2) << communicator;
      EXPECT_GT(budget.total_bytes(), rest / 5 * 2) << communicator;
      pinned += budget.total_bytes();
    }
  }
}

TEST(StagingBudget, AGroupOfCommunicatorsKeepsToTheBound) {
  std::size_t pinned = 0;
  for (const std::size_t arenas_mb : {60, 31, 16, 11}) {
    const auto budget = StagingBudget::of(StagingBudget::left(128 * mb, pinned, 4, false), false, false);
    EXPECT_EQ(budget.total_bytes() / mb, arenas_mb);
    pinned += budget.total_bytes();
  }
  EXPECT_LE(pinned, 128 * mb);
}

TEST(StagingBudget, NoCommunicatorGoesBelowTheLeast) {
  for (const std::size_t pinned : {124 * mb, 128 * mb, 1000 * mb})
    EXPECT_EQ(StagingBudget::left(128 * mb, pinned, 2, true), 12 * mb);
}

TEST(StagingBudget, TheLeastSettingIsEnoughForMostRanks) {
  const auto* const setting =
      std::find_if(std::begin(environment_table), std::end(environment_table),
                   [](const Variable& each) { return each.name == "STRAIT_HOST_MEMORY_BYTES"; });
  ASSERT_NE(setting, std::end(environment_table));
  EXPECT_EQ(static_cast<std::size_t>(setting->minimum), StagingBudget::least_bytes(kernels::max_ranks));
}

/// The smallest budget suffices even if islands halve the arenas, and all places of two islands share the reducers'
/// memory.
TEST(StagingBudget, TheLeastHasRoomForEverything) {
  for (std::uint32_t ranks = 2; ranks <= kernels::max_ranks; ++ranks) {
    const auto budget = StagingBudget::of(StagingBudget::least_bytes(ranks), true, true);
    const std::size_t arena_bytes = budget.arenas_bytes / ranks / 2;
    const auto layout = kernels::arena_layout(kernels::ArenaKind::host, ranks, arena_bytes);
    EXPECT_LE(layout.size_bytes, arena_bytes) << ranks;
    for (const auto protocol : {kernels::Protocol::packets, kernels::Protocol::bulk}) {
      const kernels::ProtocolSlots& slots = layout.slots[static_cast<std::size_t>(protocol)];
      EXPECT_GE(slots.lanes, 1u) << ranks;
      EXPECT_GE(slots.slot_bytes, kernels::piece_bytes) << ranks;
    }
    EXPECT_TRUE(
        copy_engine::StagedWindows::within(budget.windows_bytes, ranks, copy_engine::StagedOptions{}.depth, 8 * mb));
    const std::size_t meetings = std::max(ranks / 2, 1u);
    for (const auto& [meeting_ranks, parts] : {std::pair{ranks, std::size_t{1}}, std::pair{2u, meetings}}) {
      const auto memory = cpu_reducers::ReducerMemory::of(meeting_ranks, budget.reducers_bytes / parts);
      for (const WireFormat format : {WireFormat::off, WireFormat::int8, WireFormat::int4}) {
        const std::size_t run = format == WireFormat::off ? 1 : cpu_reducers::ReducerMemory::run_bytes(format);
        const std::size_t least = (kernels::min_chunk_bytes(kernels::Protocol::bulk) + run - 1) / run * run;
        EXPECT_GE(memory.slot_bytes / run * run, least) << meeting_ranks << " ranks, " << memory.lanes << " lanes";
      }
      EXPECT_LE(memory.size_bytes() * parts, budget.reducers_bytes) << meeting_ranks;
    }
  }
}

}  // namespace
}  // namespace strait
