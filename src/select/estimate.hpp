#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/clock.hpp"
#include "plan/request.hpp"

/// Predictions for more ranks than the clock can simulate: where islands are alike, one island represents all.
namespace strait {

/// One level of a machine: NVLink domains, hosts, or a network. All islands of a level have the same number of ranks,
/// which are numbered consecutively.
struct LevelRates {
  std::uint32_t ranks = 1;  ///< number of ranks of an island of this level
  double latency_us = 0;    ///< between two ranks of an island that share no island of a finer level
  double gbps = 0;          ///< of the path between two such ranks; 0: limited only by the rank that moves the bytes
  /// The rate that the ranks of a finer island share for everything that they receive from other islands of this level,
  /// and again for everything that they send to them; 0: no limit.
  double island_gbps = 0;
};

/// A machine that consists of levels. `rank_costs` has no paths, no resources and no number of ranks; the levels give
/// these.
struct LevelModel {
  ClockModel rank_costs;
  std::vector<LevelRates> levels;  ///< finest first; the only island of the last level holds all ranks

  std::uint32_t ranks() const { return levels.empty() ? 1 : levels.back().ranks; }
  /// Returns the number of ranks of an island of the level below `level`; 1 for the finest level.
  std::uint32_t finer_ranks(std::size_t level) const { return level == 0 ? 1 : levels[level - 1].ranks; }
  /// Returns the finest level on which two ranks share an island.
  std::size_t level_between(std::uint32_t a, std::uint32_t b) const;
};

/// Derives the levels of host ranks from rank 0's paths: the ranks that it reaches by equal paths form its island, and
/// the other islands are assumed to be like it.
LevelModel level_model(const ClockModel& model);

struct Estimate {
  double total_us = 0;
  std::uint32_t slices = 0;
  /// What limits the time: "latency", "cores", "ranks" or "level 1". "latency" if nothing else takes half of the time.
  std::string binding;
  bool at_least = false;  ///< total_us is a lower bound that was enough to give up
};

/// Predicts the time of one algorithm's plan on a LevelModel. It walks the steps of representative ranks for the first
/// slices; a step begins when what it waits for has arrived. Each further slice adds as much as the last walked one.
/// The result is never less than the time in which the bytes pass what islands share.
///
/// If the plan does the same on all ranks, the ranks of one finest island represent all: what they receive from
/// elsewhere is assumed to arrive when the rank at the same place of this island has sent it. Other plans (those with a
/// root) are walked on all ranks. Unlike in the clock, contention and the number of slots of a link are limits of the
/// total time rather than delays of single steps, and caches are assumed to be large enough.
class Estimator {
 public:
  /// `algorithm`, `request` and `machine` must outlive the estimator.
  Estimator(const Algorithm& algorithm, const PlanRequest& request, const LevelModel& machine);
  ~Estimator();
  Estimator(const Estimator&) = delete;
  Estimator& operator=(const Estimator&) = delete;

  /// Predicts the time. If the plan cannot take less than `give_up_us`, may return early with a lower bound. Returns
  /// Code::unsupported if there are too many steps to walk.
  Result<Estimate> time(const ClockSize& size, double give_up_us);

 private:
  const LevelModel& machine_;
  std::unique_ptr<class Representatives> representatives_;
};

}  // namespace strait
