// How arenas are divided between the protocols.
#include "kernels/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/cut.hpp"

namespace strait::kernels {
namespace {

class Layout : public ::testing::TestWithParam<ArenaKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Layout, ::testing::Values(ArenaKind::nvlink, ArenaKind::pcie, ArenaKind::host));

void expect_fits(const ArenaLayout& layout, std::uint32_t ranks, std::size_t rings, std::size_t budget_bytes) {
  EXPECT_LE(layout.size_bytes, budget_bytes) << ranks;
  std::size_t end = returned_bytes + rings * layout.slots[2].lanes * slot_depth * sizeof(std::uint64_t);
  for (const ProtocolSlots& slots : layout.slots) {
    if (slots.lanes == 0) continue;
    EXPECT_GE(slots.offset_bytes, end) << ranks;
    EXPECT_EQ(slots.offset_bytes % line_bytes, 0u) << ranks;
    EXPECT_EQ(slots.slot_bytes % piece_bytes, 0u) << ranks;
    EXPECT_GE(slots.slot_bytes, 4096u) << ranks;
    EXPECT_LE(slots.lanes, max_lanes) << ranks;
    end = slots.offset_bytes + rings * slots.lanes * slot_depth * slots.slot_bytes;
  }
  EXPECT_EQ(end, layout.size_bytes) << ranks;
}

TEST_P(Layout, FitsItsBudgetAndNothingOverlaps) {
  for (std::uint32_t ranks = 1; ranks <= max_ranks; ++ranks) {
    const bool is_host = GetParam() == ArenaKind::host;
    const std::size_t rings = is_host ? ranks : std::max(ranks, 2u) - 1;
    const std::size_t budget_bytes = is_host                           ? (std::size_t{60} << 20) / ranks
                                     : GetParam() == ArenaKind::nvlink ? std::size_t{56} << 20
                                                                       : std::size_t{60} << 20;
    expect_fits(arena_layout(GetParam(), ranks), ranks, rings, budget_bytes);
    expect_fits(arena_layout(GetParam(), ranks, budget_bytes / 2), ranks, rings, budget_bytes / 2);
  }
}
/// Smaller sizes were measured to cost more (docs/experiments.md). There must be room for the arena's counts as well.
TEST(NvlinkLayout, SlotsOfFourRanks) {
  const std::size_t counts_and_words_bytes = lane_count * sizeof(LaneCounts) + 2 * 4096;
  const ArenaLayout layout =
      arena_layout(ArenaKind::nvlink, 4, arena_bytes(ArenaKind::nvlink, 4) - counts_and_words_bytes);
  const ProtocolSlots lines = layout.slots[static_cast<std::size_t>(Protocol::lines)];
  const ProtocolSlots bulk = layout.slots[static_cast<std::size_t>(Protocol::bulk)];
  EXPECT_EQ(lines.lanes, 128u);
  EXPECT_EQ(lines.slot_bytes, 13u << 10);
  EXPECT_EQ(bulk.lanes, 128u);
  EXPECT_EQ(bulk.slot_bytes, 24u << 10);
}
/// Lines need 128 bytes to arrive as a whole, which only NVLink guarantees.
TEST_P(Layout, LinesAreForNvlink) {
  const ArenaLayout layout = arena_layout(GetParam(), 4);
  const bool nvlink = GetParam() == ArenaKind::nvlink;
  EXPECT_EQ(layout.slots[static_cast<std::size_t>(Protocol::lines)].lanes != 0, nvlink);
  EXPECT_EQ(layout.slots[static_cast<std::size_t>(Protocol::packets)].lanes != 0, !nvlink);
  EXPECT_NE(layout.slots[static_cast<std::size_t>(Protocol::bulk)].lanes, 0u);
}
/// Any number of blocks serves only lanes that exist, and all of a message.
TEST_P(Layout, FewBlocksServeSeveralLanes) {
  for (const std::uint32_t ranks : {2u, 3u, 8u, 16u})
    for (const std::uint32_t max_blocks : {0u, 1u, 3u, 4u, 24u, 1000u})
      for (const std::size_t bytes :
           {std::size_t{1}, std::size_t{70'000}, std::size_t{3} << 20, std::size_t{1} << 28}) {
        const ArenaLayout layout = arena_layout(GetParam(), ranks);
        Ring ring{};
        std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
        const std::uint32_t all_lanes = layout.slots[static_cast<std::size_t>(Protocol::bulk)].lanes;
        const Slots through = slots_of(ring, Protocol::bulk, max_blocks);
        const Cut parts = cut(through, bytes);
        const Shape shape = shape_of(through, parts.lanes);
        const std::string what = std::to_string(bytes) + " bytes on " + std::to_string(max_blocks) + " blocks";
        EXPECT_LE(shape.blocks, max_blocks == 0 ? all_lanes : max_blocks) << what;
        EXPECT_LE(shape.blocks * shape.width, all_lanes) << what;
        EXPECT_LE(shape.width, max_width) << what;
        EXPECT_GE(shape.blocks * shape.width, parts.lanes) << what;
        EXPECT_LE(parts.chunk_bytes, through.slot_bytes) << what;
        EXPECT_GE(std::size_t{rounds_of(bytes, parts)} * parts.lanes * parts.chunk_bytes, bytes) << what;
        EXPECT_GE(threads_for(1, ranks, shape.width), ranks * shape.width) << what;
        EXPECT_GE(threads_for(1, ranks, shape.width, 2), 2 * lane_managers_of(ranks, shape.width)) << what;
      }
}

}  // namespace
}  // namespace strait::kernels
