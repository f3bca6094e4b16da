#pragma once

#include <cstdint>
#include <vector>

#include "plan/request.hpp"

namespace strait::algorithms {

/// The ranks as points of a grid. Coordinate 0 is the place within the finest island, the last coordinate is the island
/// of the coarsest level. Levels whose islands differ in size are left out. `sizes` contains no ones. It is empty if
/// the islands of some level are not nested in those of the next.
struct Grid {
  std::vector<std::uint32_t> sizes;
  std::vector<std::uint32_t> rank_of;   ///< by point
  std::vector<std::uint32_t> point_of;  ///< by rank

  std::uint32_t coordinate(std::uint32_t point, std::size_t dimension) const {
    return point / stride(dimension) % sizes[dimension];
  }
  /// Returns the point with one coordinate changed.
  std::uint32_t moved(std::uint32_t point, std::size_t dimension, std::uint32_t coordinate_value) const {
    return point + (coordinate_value - coordinate(point, dimension)) * stride(dimension);
  }
  /// Returns the distance of neighbouring points along a dimension.
  std::uint32_t stride(std::size_t dimension) const {
    std::uint32_t stride = 1;
    for (std::size_t d = 0; d < dimension; ++d) stride *= sizes[d];
    return stride;
  }
};

Grid grid_of(const PlanRequest& request);

}  // namespace strait::algorithms
