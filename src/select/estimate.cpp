#include "select/estimate.hpp"

#include <algorithm>
#include <utility>

#include "base/units.hpp"
#include "select/representatives.hpp"

namespace strait {
namespace {

constexpr std::uint32_t walked_slices = 3;
using End = Representatives::End;

double step_bytes(const Representatives::Step& step, const Layout& layout, std::size_t element_bytes,
                  std::uint32_t slice) {
  if (step.chunk == Representatives::Step::no_chunk) return 0;
  return static_cast<double>(layout.slice_of(step.chunk, slice).count * element_bytes);
}

/// Walks the lanes of the ranks. Each lane advances as far as it can, and again when what it waits for has been given.
class Walk {
 public:
  Walk(const Representatives& who, const Layout& layout, std::size_t element_bytes, const ClockModel& rank)
      : who_(who),
        layout_(layout),
        element_bytes_(element_bytes),
        rank_(rank),
        slices_(std::min(layout.slices, walked_slices)),
        first_given_(who.channels().size() + 1),
        given_(who.channels().size(), 0),
        waiting_(who.channels().size(), none),
        giver_us_(who.channels().size(), 0),
        taken_(who.takers(), 0),
        cycle_us_(who.takers(), 0),
        free_us_(who.ranks(), 0),
        ends_us_(slices_, 0),
        lanes_(who.lanes().size()) {
    for (std::size_t channel = 0; channel < given_.size(); ++channel)
      first_given_[channel + 1] = first_given_[channel] + who.channels()[channel].gives * slices_;
    given_us_.assign(first_given_.back(), 0);
  }

  /// Walks all lanes. Returns false if some rank waits forever.
  bool run() {
    for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i].step = who_.lanes()[i].begin;
      ready_.push_back(i);
    }
    std::size_t done = 0;
    while (!ready_.empty()) {
      const std::uint32_t lane = ready_.back();
      ready_.pop_back();
      done += advance(lane) ? 1 : 0;
    }
    return done == lanes_.size();
  }

  std::uint32_t slices() const { return slices_; }
  double end_us() const { return slices_ == 0 ? 0 : *std::max_element(ends_us_.begin(), ends_us_.end()); }
  /// Returns the time that the last walked slice added; 0 if all slices were walked.
  double pace_us() const { return slices_ < walked_slices ? 0 : ends_us_[slices_ - 1] - ends_us_[slices_ - 2]; }
  /// Returns the least time of a slice because a link has only so many slots: in the time in which a message is
  /// written, seen, read and released, no more messages than there are slots pass through the link.
  double cycle_us() const {
    const double most = cycle_us_.empty() ? 0 : *std::max_element(cycle_us_.begin(), cycle_us_.end());
    return slices_ == 0 ? 0 : most / slices_ / rank_.slots;
  }
  double busy_us() const { return busy_us_; }                 ///< time that all walked ranks work, together
  double gaps() const { return static_cast<double>(gaps_); }  ///< how often a rank had to wait

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct LaneState {
    std::uint32_t slice = 0;
    std::uint32_t step = 0;
    std::uint32_t next_waiting = none;  ///< next lane that waits for the same channel
    double at_us = 0;
  };

  /// Runs the lane until it has to wait. Returns whether it is done.
  bool advance(std::uint32_t index) {
    LaneState& lane = lanes_[index];
    const Representatives::Lane range = who_.lanes()[index];
    while (lane.slice < slices_ && range.begin != range.end) {
      const auto& step = who_.steps()[lane.step];
      const End* ends = who_.ends().data() + step.begin;
      double begin_us = lane.at_us;
      for (std::uint16_t i = 0; i < step.takes; ++i) {
        const std::uint32_t channel = ends[i].channel, next = taken_[ends[i].taker];
        if (next == given_[channel]) {
          lane.next_waiting = std::exchange(waiting_[channel], index);
          return false;
        }
        begin_us = std::max(begin_us, given_us_[first_given_[channel] + next] + ends[i].latency_us);
      }
      take_step(range.rank, lane, step, ends, begin_us);
      if (++lane.step < range.end) continue;
      lane.step = range.begin;
      ++lane.slice;
    }
    return true;
  }

  void take_step(std::uint32_t rank, LaneState& lane, const Representatives::Step& step, const End* ends,
                 double begin_us) {
    if (rank_.lanes_at_once == 1) {
      gaps_ += begin_us > free_us_[rank] ? 1 : 0;
      begin_us = std::max(begin_us, free_us_[rank]);
    }
    const double work_us =
        step.overhead_us(rank_) + step.us_per_byte * step_bytes(step, layout_, element_bytes_, lane.slice);
    busy_us_ += work_us;
    for (std::uint16_t i = 0; i < step.takes; ++i) {
      ++taken_[ends[i].taker];
      if (!who_.channels()[ends[i].channel].signal)
        cycle_us_[ends[i].taker] += giver_us_[ends[i].channel] + 2 * ends[i].latency_us + work_us;
    }
    lane.at_us = free_us_[rank] = begin_us + work_us;
    for (std::uint32_t i = step.takes; i < std::uint32_t{step.takes} + step.gives; ++i) {
      giver_us_[ends[i].channel] = work_us;
      give(ends[i].channel, lane.at_us);
    }
    ends_us_[lane.slice] = std::max(ends_us_[lane.slice], lane.at_us);
  }

  void give(std::uint32_t channel, double when_us) {
    given_us_[first_given_[channel] + given_[channel]++] = when_us;
    for (std::uint32_t lane = std::exchange(waiting_[channel], none); lane != none; lane = lanes_[lane].next_waiting)
      ready_.push_back(lane);
  }

  const Representatives& who_;
  const Layout& layout_;
  std::size_t element_bytes_;
  const ClockModel& rank_;
  std::uint32_t slices_;
  std::vector<std::uint32_t> first_given_;  ///< index of a channel's first entry in given_us_
  std::vector<std::uint32_t> given_;        ///< number given so far, by channel
  std::vector<std::uint32_t> waiting_;      ///< by channel: the first lane that waits for it, which names the next
  std::vector<double> giver_us_;            ///< by channel: the work of the step that gave last
  std::vector<std::uint32_t> taken_;        ///< number taken so far, by taker
  std::vector<double> cycle_us_;            ///< by taker: sum over all messages of the time that each occupies a slot
  std::vector<double> free_us_;             ///< by rank: when it is free for its next step
  std::vector<double> ends_us_;             ///< by slice: when its last step ends
  std::vector<double> given_us_;  ///< when each message or signal is given; those of a channel are consecutive
  std::vector<LaneState> lanes_;
  std::vector<std::uint32_t> ready_;
  double busy_us_ = 0;
  std::size_t gaps_ = 0;
};

/// Returns the longest time that the bytes between islands below `level` take to enter or leave one of them.
double crossing_us(const Representatives& who, const LevelModel& machine, std::uint32_t level, const Layout& layout,
                   std::size_t element_bytes) {
  if (machine.levels[level].island_gbps <= 0) return 0;
  const std::uint32_t island_ranks = machine.finer_ranks(level);
  std::vector<double> in(machine.ranks() / island_ranks, 0), out(in.size(), 0);
  for (const auto& crossing : who.crossings()) {
    if (crossing.level != level) continue;
    const auto bytes = static_cast<double>(layout.chunk(crossing.chunk).count * element_bytes);
    in[crossing.to / island_ranks] += bytes;
    out[crossing.from / island_ranks] += bytes;
  }
  double most = *std::max_element(in.begin(), in.end());
  if (who.stand_for_all())  // what they send equals what other islands receive
    most *= std::max(1.0, static_cast<double>(island_ranks) / static_cast<double>(who.ranks()));
  else
    most = std::max(most, *std::max_element(out.begin(), out.end()));
  return most / (machine.levels[level].island_gbps * bytes_per_us);
}

}  // namespace

Estimator::Estimator(const Algorithm& algorithm, const PlanRequest& request, const LevelModel& machine)
    : machine_(machine), representatives_(std::make_unique<Representatives>(algorithm, request, machine)) {}

Estimator::~Estimator() = default;

Result<Estimate> Estimator::time(const ClockSize& size, double give_up_us) {
  const ClockModel& model = machine_.rank_costs;
  const Layout layout = representatives_->layout(size);
  const double own_us = model.call_us + representatives_->own_work_us(layout, size.element_bytes);
  if (own_us >= give_up_us) return Estimate{own_us, layout.slices, "ranks", true};
  STRAIT_TRY(representatives_->complete());
  const Representatives& who = *representatives_;
  Walk walk(who, layout, size.element_bytes, model);
  if (!walk.run()) return fail(Code::internal_error, "a plan blocks for ever, or its ranks are not alike");

  const double further = layout.slices - walk.slices();
  const double pace_us = std::max(walk.pace_us(), walk.cycle_us());
  Estimate estimate{walk.end_us() + pace_us * further, layout.slices, "latency", false};
  double most_us = 0;
  const auto limit = [&](double needed_us, const std::string& name) {
    if (needed_us > most_us) estimate.binding = name;
    most_us = std::max(most_us, needed_us);
  };
  const double walked = std::max(1U, walk.slices());
  const auto ranks = static_cast<double>(who.ranks());
  if (model.cores > 0 && model.cores < machine_.ranks()) {
    const double in_turn = (walk.busy_us() + walk.gaps() * model.switch_us) * machine_.ranks() / ranks / model.cores;
    limit(in_turn * layout.slices / walked, "cores");
  }
  limit(own_us - model.call_us, "ranks");
  for (std::uint32_t level = 0; level < machine_.levels.size(); ++level)
    limit(crossing_us(who, machine_, level, layout, size.element_bytes), "level " + std::to_string(level));
  estimate.total_us = std::max(estimate.total_us, most_us);
  if (most_us < estimate.total_us / 2) estimate.binding = "latency";
  if (layout.slices > 0) estimate.total_us += model.call_us;
  return estimate;
}

}  // namespace strait
