#pragma once

#include <cstdint>
#include <vector>

#include "plan/request.hpp"

namespace strait::algorithms {

/// Ranks as points of a grid: coordinate 0 is the place within the finest island, the last one the island of the
/// coarsest level. Levels whose islands differ in size are left out. `sizes` has no ones; it is empty unless the
/// islands of each level lie within one island of the next.
struct Grid {
  std::vector<std::uint32_t> sizes;
  std::vector<std::uint32_t> rank_of;   ///< by point
  std::vector<std::uint32_t> point_of;  ///< by rank

  std::uint32_t coordinate(std::uint32_t point, std::size_t dimension) const {
    return point / stride(dimension) % sizes[dimension];
  }
  /// The point with one coordinate changed.
  std::uint32_t moved(std::uint32_t point, std::size_t dimension, std::uint32_t coordinate_value) const {
    return point + (coordinate_value - coordinate(point, dimension)) * stride(dimension);
  }
  /// Points between neighbours along a dimension.
  std::uint32_t stride(std::size_t dimension) const {
    std::uint32_t stride = 1;
    for (std::size_t d = 0; d < dimension; ++d) stride *= sizes[d];
    return stride;
  }
};

Grid grid_of(const PlanRequest& request);

}  // namespace strait::algorithms
