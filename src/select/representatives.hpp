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

/// The steps of the ranks that an estimate walks, with only what their time depends on: a plan of thousands of steps
/// takes a few tens of bytes for each. What they take from ranks that are not walked is taken from the ranks that stand
/// for those.
class Representatives {
 public:
  struct Step {
    float us_per_byte = 0;           ///< apart from ClockModel::step_us
    std::uint32_t chunk = no_chunk;  ///< whose slice it moves
    std::uint32_t begin = 0;         ///< of its ends in ends(): what it takes, then what it gives
    std::uint16_t takes = 0;
    std::uint16_t gives = 0;
    static constexpr std::uint32_t no_chunk = UINT32_MAX;
    double overhead_us(const ClockModel& model) const {
      return model.step_us + model.end_us * std::max(0, takes + gives - 1);
    }
  };
  /// A link or a signal as a step uses it.
  struct End {
    std::uint32_t channel = 0;
    std::uint32_t taker = 0;  ///< of what is taken: which of all takers of all channels
    float latency_us = 0;     ///< likewise
  };
  /// A range of steps().
  struct Lane {
    std::uint32_t rank = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  /// What both ends of a link or signal need to know of it.
  struct Channel {
    std::uint32_t credits = 0;  ///< of a signal
    std::uint32_t gives = 0;    ///< a slice
    bool signal = false;
  };
  /// A chunk's bytes on their way between two islands of a level.
  struct Crossing {
    std::uint32_t chunk = 0;
    std::uint32_t level = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
  };

  Representatives(const Algorithm& algorithm, const PlanRequest& request, const LevelModel& machine);

  /// What the first rank does, all slices, as if it never had to wait: a lower bound, and cheap.
  double own_work_us(const Layout& layout, std::size_t element_bytes) const;
  /// Builds all that is walked; once. Code::unsupported: too much.
  Status complete();

  std::uint32_t ranks() const { return ranks_; }
  const std::vector<Lane>& lanes() const { return lanes_; }  ///< those of a rank in a row
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<End>& ends() const { return ends_; }
  const std::vector<Channel>& channels() const { return channels_; }
  const std::vector<Crossing>& crossings() const { return crossings_; }
  std::uint32_t takers() const { return takers_; }
  bool stand_for_all() const { return stand_for_all_; }
  Layout layout(const ClockSize& size) const;

 private:
  struct Draft;
  struct Fold;
  Step described(const strait::Step& step, const RankPlan& plan) const;
  void clear();
  void add_steps(const RankPlan& plan, std::uint32_t rank);
  void add_crossings(const RankPlan& plan, std::uint32_t rank);
  Status build(std::uint32_t count, const Fold& fold);
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
