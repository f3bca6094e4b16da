#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "plan/request.hpp"
#include "select/estimate.hpp"

namespace strait {

/// The steps of the ranks that an estimate walks, reduced to what their time depends on: a few tens of bytes a step,
/// because a plan has thousands. What they receive from ranks that are not walked is taken from the ranks that
/// represent those.
class Representatives {
 public:
  struct Step {
    float us_per_byte = 0;           ///< in addition to ClockModel::step_us
    std::uint32_t chunk = no_chunk;  ///< the chunk whose slices it moves
    std::uint32_t begin = 0;         ///< index in ends() of its first end; first `takes` ends, then `gives` ends
    std::uint16_t takes = 0;
    std::uint16_t gives = 0;
    static constexpr std::uint32_t no_chunk = UINT32_MAX;
    double overhead_us(const ClockModel& model) const {
      return model.step_us + model.links_us(std::size_t{takes} + gives);
    }
  };
  /// A link or signal that a step uses: it takes (receives or waits) or gives (sends or signals).
  struct End {
    std::uint32_t channel = 0;
    /// If the step takes from the channel: the number of this reader, counted over all readers of all channels.
    std::uint32_t taker = 0;
    float latency_us = 0;  ///< if the step takes: from giving until the reader sees it
  };
  /// One lane of a rank: a range of steps().
  struct Lane {
    std::uint32_t rank = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  /// What both ends of a link or signal need to know about it.
  struct Channel {
    std::uint32_t gives = 0;  ///< how often a slice is given (sent or signalled)
    bool signal = false;
  };
  /// A chunk whose bytes pass from one island of a level to another.
  struct Crossing {
    std::uint32_t chunk = 0;
    std::uint32_t level = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
  };

  Representatives(const Algorithm& algorithm, const PlanRequest& request, const LevelModel& machine);

  /// Returns the time of the first rank's work for all slices if it never had to wait: a lower bound that is cheap to
  /// compute.
  double own_work_us(const Layout& layout, std::size_t element_bytes) const;
  /// Builds the steps of all ranks that are walked; does nothing if they exist already. Returns Code::unsupported if
  /// there are too many.
  Status complete();

  std::uint32_t ranks() const { return ranks_; }
  const std::vector<Lane>& lanes() const { return lanes_; }  ///< those of a rank are consecutive
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<End>& ends() const { return ends_; }
  const std::vector<Channel>& channels() const { return channels_; }
  const std::vector<Crossing>& crossings() const { return crossings_; }
  std::uint32_t takers() const { return takers_; }
  bool stand_for_all() const { return stand_for_all_; }
  Layout layout(const ClockSize& size) const { return layout_of(plan_, size); }

 private:
  struct Draft;
  struct Symmetry;
  Step described(const strait::Step& step, const RankPlan& plan) const;
  void clear();
  void add_steps(const RankPlan& plan, std::uint32_t rank);
  void add_crossings(const RankPlan& plan, std::uint32_t rank);
  Status build(std::uint32_t count, const Symmetry& symmetry);
  bool is_alike(const RankPlan& a, const RankPlan& b) const;

  const Algorithm& algorithm_;
  const PlanRequest& request_;
  const LevelModel& machine_;
  RankPlan plan_;  ///< of rank 0
  bool stand_for_all_ = false;
  std::uint32_t ranks_ = 0;
  std::vector<Lane> lanes_;
  std::vector<Step> steps_;
  std::vector<End> ends_;
  std::vector<Channel> channels_;
  std::vector<Crossing> crossings_;
  std::uint32_t takers_ = 0;
};

}  // namespace strait
