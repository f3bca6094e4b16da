#include "plan/plan_ratios.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace strait {

void PlanRatios::add(Collective collective, std::string_view algorithm, std::size_t bytes, double ratio) {
  points_[{collective, std::string(algorithm)}][bytes] = ratio;
}

double PlanRatios::of(Collective collective, std::string_view algorithm, std::size_t bytes) const {
  if (points_.empty()) return 1;
  const auto found = points_.find({collective, std::string(algorithm)});
  if (found == points_.end()) return 1;
  const Points& points = found->second;
  const auto above = points.lower_bound(bytes);
  if (above == points.begin()) return above->second;
  if (above == points.end()) return points.rbegin()->second;
  const auto below = std::prev(above);
  const auto logarithm = [](std::size_t of) { return std::log(static_cast<double>(std::max<std::size_t>(1, of))); };
  const double way = (logarithm(bytes) - logarithm(below->first)) / (logarithm(above->first) - logarithm(below->first));
  return below->second + way * (above->second - below->second);
}

}  // namespace strait
