#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/types.hpp"

namespace strait {

/// Measured times of plans on a machine, as multiples of what the clock predicts from the machine's rates. For one
/// transport and one number of ranks.
class PlanRatios {
 public:
  using Points = std::map<std::size_t, double>;  ///< by the bytes of the larger of a rank's two buffers

  void add(Collective collective, std::string_view algorithm, std::size_t bytes, double ratio);
  /// Interpolates between measured sizes over the logarithm of the bytes. Outside the measured range, returns the ratio
  /// of the nearest size. Returns 1 if this plan was not measured.
  double of(Collective collective, std::string_view algorithm, std::size_t bytes) const;
  const std::map<std::pair<Collective, std::string>, Points>& points() const { return points_; }

  friend bool operator==(const PlanRatios&, const PlanRatios&) = default;

 private:
  std::map<std::pair<Collective, std::string>, Points> points_;
};

}  // namespace strait
