#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/types.hpp"

namespace strait {

/// How long plans took on a machine, each measured on its own, as multiples of what the clock makes of its rates: what
/// those leave over. Of one transport and number of ranks.
class PlanRatios {
 public:
  using Points = std::map<std::size_t, double>;  ///< by the bytes of the larger of a rank's buffers

  void add(Collective collective, std::string_view algorithm, std::size_t bytes, double ratio);
  /// Between two measured sizes along the logarithm of the bytes; beyond the last, that one's. 1: not measured.
  double of(Collective collective, std::string_view algorithm, std::size_t bytes) const;
  const std::map<std::pair<Collective, std::string>, Points>& points() const { return points_; }

  friend bool operator==(const PlanRatios&, const PlanRatios&) = default;

 private:
  std::map<std::pair<Collective, std::string>, Points> points_;
};

}  // namespace strait
