#include "plan/layout.hpp"

#include <algorithm>

namespace strait {
namespace {

std::size_t divide_up(std::size_t a, std::size_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

Layout::Layout(const RankPlan& plan, std::size_t count, std::size_t element_bytes, std::size_t slice_bytes)
    : block_elements(count), chunks_per_block(plan.chunks_per_block) {
  const std::size_t unit = std::max<std::size_t>(1, 16 / element_bytes);
  chunk_elements = divide_up(divide_up(count, chunks_per_block), unit) * unit;
  slice_elements = std::max(unit, slice_bytes / element_bytes / unit * unit);
  slices = static_cast<std::uint32_t>(divide_up(std::min(chunk_elements, count), slice_elements));
}

}  // namespace strait
