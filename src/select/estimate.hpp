#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/clock.hpp"
#include "plan/request.hpp"

/// Predictions for more ranks than the clock can walk: of machines whose islands are alike, one island stands for all.
namespace strait {

/// What one level of a machine gives: the ranks of an NVLink domain, of a host, of a network. Every island has the same
/// number of ranks, numbered in a row.
struct LevelRates {
  std::uint32_t ranks = 1;  ///< of an island of this level
  double latency_us = 0;    ///< between two of its ranks that share no finer island
  double gbps = 0;          ///< of the path between two such ranks; 0: no limit but that of the rank that moves bytes
  double island_gbps = 0;   ///< what the ranks of a finer island share for all that they get from others of this one,
                            ///< and again for all that they send them; 0: no limit
};

/// A machine of levels. In `rank` the paths, resources and number of ranks are left out: the levels say them.
struct LevelModel {
  ClockModel rank;
  std::vector<LevelRates> levels;  ///< finest first; the last one holds all ranks

  std::uint32_t ranks() const { return levels.empty() ? 1 : levels.back().ranks; }
  /// The ranks of an island of the level below `level`; 1 below the finest.
  std::uint32_t finer_ranks(std::size_t level) const { return level == 0 ? 1 : levels[level - 1].ranks; }
  /// The finest level on which two ranks share an island.
  std::size_t level_between(std::uint32_t a, std::uint32_t b) const;
};

/// Of host ranks, as far as rank 0 tells: the ranks that it reaches alike are its island, and there are more such
/// islands.
LevelModel level_model(const ClockModel& model);

struct Estimate {
  double total_us = 0;
  std::uint32_t slices = 0;
  std::string binding;    ///< "latency", "ranks" or "level 1": what is used most, if by half
  bool at_least = false;  ///< the time is a lower bound, and enough to give up
};

/// The time of one algorithm's plan on a machine of levels: the steps of representative ranks, each when what it waits
/// for is there, for the first slices; what the last of these adds counts for every further one; and never less than
/// the bytes over what islands share. In a plan that does the same on all ranks, the ranks of one finest island stand
/// for all: what a rank gets from elsewhere is there when the rank in the same place of that island has sent it. Other
/// plans (those with a root) are walked on all ranks. Unlike the clock it takes contention and the depth of links for
/// limits rather than delays, and caches for large enough.
class Estimator {
 public:
  /// All three outlive the estimator.
  Estimator(const Algorithm& algorithm, const PlanRequest& request, const LevelModel& machine);
  ~Estimator();
  Estimator(const Estimator&) = delete;
  Estimator& operator=(const Estimator&) = delete;

  /// Gives up with a lower bound where the plan cannot be faster than `give_up_us`. Code::unsupported: there are too
  /// many steps to walk.
  Result<Estimate> time(const ClockSize& size, double give_up_us);

 private:
  const LevelModel& machine_;
  std::unique_ptr<class Representatives> representatives_;
};

}  // namespace strait
