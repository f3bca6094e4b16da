// How arenas are shared out between the wires.
#include "kernels/layout.hpp"

#include <gtest/gtest.h>

namespace strait::kernels {
namespace {

class Layout : public ::testing::TestWithParam<ArenaKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Layout, ::testing::Values(ArenaKind::nvlink, ArenaKind::pcie, ArenaKind::host));

void expect_fits(const ArenaLayout& layout, std::uint32_t ranks, std::size_t rings, std::size_t budget_bytes) {
  EXPECT_LE(layout.size_bytes, budget_bytes) << ranks;
  std::size_t end = returned_bytes + rings * layout.slots[2].lanes * slot_depth * sizeof(std::uint64_t);
  for (const WireSlots& slots : layout.slots) {
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
    const std::size_t budget_bytes = (std::size_t{60} << 20) / (is_host ? ranks : 1);
    expect_fits(arena_layout(GetParam(), ranks), ranks, rings, budget_bytes);
    expect_fits(arena_layout(GetParam(), ranks, budget_bytes / 2), ranks, rings, budget_bytes / 2);
  }
}
/// Lines need 128 bytes to arrive whole, which only NVLink promises.
TEST_P(Layout, LinesAreForNvlink) {
  const ArenaLayout layout = arena_layout(GetParam(), 4);
  const bool nvlink = GetParam() == ArenaKind::nvlink;
  EXPECT_EQ(layout.slots[static_cast<std::size_t>(Wire::lines)].lanes != 0, nvlink);
  EXPECT_EQ(layout.slots[static_cast<std::size_t>(Wire::packets)].lanes != 0, !nvlink);
  EXPECT_NE(layout.slots[static_cast<std::size_t>(Wire::bulk)].lanes, 0u);
}

}  // namespace
}  // namespace strait::kernels
