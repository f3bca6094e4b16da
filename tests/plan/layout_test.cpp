#include "plan/layout.hpp"

#include <gtest/gtest.h>

#include "plan/request.hpp"

namespace strait {
namespace {

RankPlan plan_of(Collective collective, std::uint32_t ranks, std::uint32_t chunks_per_block) {
  RankPlan plan;
  plan.collective = collective;
  plan.ranks = ranks;
  plan.chunks_per_block = chunks_per_block;
  return plan;
}

TEST(Layout, SlicesCoverEveryElementOnceAndInOrder) {
  for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 1000U, 4096U, 99991U})
    for (const std::size_t element_bytes : {1U, 2U, 4U, 8U})
      for (const std::size_t slice_bytes : {1U, 16U, 1000U, 65536U})
        for (const std::uint32_t chunks : {1U, 3U, 8U}) {
          const RankPlan plan = plan_of(Collective::all_gather, 3, chunks);
          const Layout layout(plan, count, element_bytes, slice_bytes);
          std::size_t next = 0;
          for (std::uint32_t chunk = 0; chunk < plan.output_chunks(); ++chunk)
            for (std::uint32_t slice = 0; slice < layout.slices; ++slice) {
              const Extent extent = layout.slice_of(chunk, slice);
              if (extent.count == 0) continue;
              ASSERT_EQ(extent.offset, next) << count << " " << element_bytes << " " << slice_bytes << " " << chunks;
              next += extent.count;
            }
          EXPECT_EQ(next, 3 * count) << count << " " << element_bytes << " " << slice_bytes << " " << chunks;
        }
}

TEST(Layout, SlicesBeginAtMultiplesOf16BytesWithinABlock) {
  const RankPlan plan = plan_of(Collective::all_reduce, 4, 4);
  const Layout layout(plan, 1001, 2, 100);
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk)
    for (std::uint32_t slice = 0; slice < layout.slices; ++slice) {
      const Extent extent = layout.slice_of(chunk, slice);
      if (extent.count == 0) continue;
      EXPECT_EQ(extent.offset * 2 % 16, 0U);
    }
}

}  // namespace
}  // namespace strait
