#include "communicator/staging_budget.hpp"

#include <gtest/gtest.h>

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

/// Also where islands halve the arenas, and all places of two islands have a part of the reducers' memory.
TEST(StagingBudget, TheLeastHasRoomForEverything) {
  const auto budget = StagingBudget::of(96 * mb, true, true);
  for (std::uint32_t ranks = 2; ranks <= kernels::max_ranks; ++ranks) {
    const std::size_t arena_bytes = budget.arenas_bytes / ranks / 2;
    const auto layout = kernels::arena_layout(kernels::ArenaKind::host, ranks, arena_bytes);
    EXPECT_LE(layout.size_bytes, arena_bytes) << ranks;
    for (const auto wire : {kernels::Wire::packets, kernels::Wire::bulk}) {
      const kernels::WireSlots& slots = layout.slots[static_cast<std::size_t>(wire)];
      EXPECT_GE(slots.lanes, 1u) << ranks;
      EXPECT_GE(slots.slot_bytes, kernels::piece_bytes) << ranks;
    }
    EXPECT_TRUE(staged::StagedWindows::within(budget.windows_bytes, ranks, staged::StagedOptions{}.depth, 8 * mb));
    const std::size_t meetings = std::max(ranks / 2, 1u);
    for (const auto& [meeting_ranks, parts] : {std::pair{ranks, std::size_t{1}}, std::pair{2u, meetings}}) {
      const auto memory = cpu_reducers::ReducerMemory::of(meeting_ranks, budget.reducers_bytes / parts);
      for (const WireFormat format : {WireFormat::off, WireFormat::int8, WireFormat::int4}) {
        const std::size_t run = format == WireFormat::off ? 1 : cpu_reducers::ReducerMemory::run_bytes(format);
        const std::size_t least = (kernels::min_chunk_bytes(kernels::Wire::bulk) + run - 1) / run * run;
        EXPECT_GE(memory.slot_bytes / run * run, least) << meeting_ranks << " ranks, " << memory.lanes << " lanes";
      }
      EXPECT_LE(memory.size_bytes() * parts, budget.reducers_bytes) << meeting_ranks;
    }
  }
}

}  // namespace
}  // namespace strait
