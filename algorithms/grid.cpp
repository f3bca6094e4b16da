#include "grid.hpp"

#include <algorithm>
#include <map>

namespace strait::algorithms {
namespace {

using Path = std::vector<std::uint32_t>;  ///< the islands of a rank, coarsest first

/// Returns the number of ranks in each island of a level, where islands are named by their path; 0 if sizes differ.
std::uint32_t island_size(const std::vector<Path>& paths, std::size_t depth) {
  std::map<Path, std::uint32_t> sizes;
  for (const Path& path : paths) ++sizes[Path(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(depth))];
  for (const auto& [path, size] : sizes)
    if (size != sizes.begin()->second) return 0;
  return sizes.begin()->second;
}

/// Returns whether each island number stands for a single path.
bool is_nested(const std::vector<Path>& paths, std::size_t depth) {
  std::map<std::uint32_t, Path> path_of;
  for (const Path& path : paths) {
    const Path prefix(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(depth));
    if (path_of.try_emplace(prefix.back(), prefix).first->second != prefix) return false;
  }
  return true;
}

}  // namespace

Grid grid_of(const PlanRequest& request) {
  const std::size_t levels = request.shape.levels.size();
  std::vector<Path> paths(request.ranks);
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank)
    for (std::size_t level = levels; level-- > 0;) paths[rank].push_back(request.shape.levels[level][rank]);

  Grid grid;
  std::uint32_t inner = 1;  // number of ranks in an island of the next finer level
  for (std::size_t depth = levels + 1; depth-- > 0;) {
    const std::uint32_t size = island_size(paths, depth);
    if (size == 0) continue;
    if (size % inner != 0 || (depth > 0 && !is_nested(paths, depth))) return {};
    if (size > inner) grid.sizes.push_back(size / inner);
    inner = size;
  }
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank) grid.rank_of.push_back(rank);
  std::stable_sort(grid.rank_of.begin(), grid.rank_of.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return paths[a] < paths[b]; });
  grid.point_of.resize(request.ranks);
  for (std::uint32_t point = 0; point < request.ranks; ++point) grid.point_of[grid.rank_of[point]] = point;
  return grid;
}

}  // namespace strait::algorithms
