#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/clock.hpp"
#include "plan/clock_memory.hpp"
#include "plan/layout.hpp"

/// The discrete-event simulation that implements simulate() of plan/clock.hpp. Internal to the clock.
namespace strait::clock_detail {

struct Message {
  double published = 0;  ///< time at which the writer published it
  double released = 0;   ///< time at which the last reader released it
  std::uint32_t readers_left = 0;
};

struct Channel {
  std::vector<Message> messages;
  std::uint32_t writer = 0;
  std::vector<std::uint32_t> readers;
};

struct Counter {
  std::vector<double> added;  ///< times at which the increments become visible, in order
  std::size_t taken = 0;
};

/// A use of a resource by a running step.
struct Demand {
  std::uint16_t resource = 0;
  double rate = 0;  ///< used at full speed
};

/// A step that is being executed.
struct Running {
  std::uint32_t rank = 0;
  std::uint32_t lane = 0;
  double left_us = 0;  ///< remaining time at full speed
  double speed = 1;
  double begin_us = 0;
  std::vector<Demand> demands;
};

struct LaneClock {
  std::uint32_t slice = 0;
  std::uint32_t step = 0;
  bool running = false;
  bool finished = false;
};

struct RankClock {
  std::vector<LaneClock> lanes;
  std::vector<std::uint32_t> channels;      ///< indices into channels_, by link of the plan
  std::vector<std::uint32_t> counters;      ///< indices into counters_, by signal of the plan
  std::vector<std::uint32_t> next_message;  ///< next message to read, by link of the plan
  std::uint32_t running = 0;
  bool on_core = false;
  bool gave_way = false;     ///< whether it has given up its core in this operation, since its last step
  bool may_be_ready = true;  ///< whether one of its steps may have become ready
};

class Simulation {
 public:
  Simulation(const Plan& plan, const ClockSize& size, const ClockModel& model, std::uint32_t slices, Timeline timeline);
  Result<ClockResult> run();

 private:
  void connect();
  void start_all_ready();
  void start_ready(std::uint32_t rank);
  bool take_core(RankClock& state);
  /// Returns the time from which the lane's next step may start: past, present or future, or `never` as long as it
  /// depends on steps that have not run yet.
  double ready_at(std::uint32_t rank, const Step& step);
  void start(std::uint32_t rank, std::uint32_t lane);
  void finish(const Running& done);
  Running& add_running();
  void add_work(Running& running, const Operand& operand, std::uint32_t slice, double bytes,
                std::optional<Writes> writes);
  static void add_demand(Running& running, std::uint16_t resource, double bytes);
  void cross(Running& running, const ClockPath& path, double bytes) const;
  ClockPath path_to(const Channel& channel) const;
  double advance();
  void set_speeds();
  void stir_later(std::uint32_t rank, double when) { wakes_.emplace(when, rank); }
  double latency(std::uint32_t from, std::uint32_t to) const {
    return model_.paths[from * model_.ranks + to].latency_us;
  }
  double bytes_of(const Operand& operand, std::uint32_t slice) const;
  ClockResult result() const;

  const Plan& plan_;
  const ClockSize& size_;
  const ClockModel& model_;
  Layout layout_;
  std::uint32_t slices_;
  ClockMemory memory_;
  std::vector<RankClock> ranks_;
  std::vector<Channel> channels_;
  std::vector<Counter> counters_;
  std::vector<Running> running_;  ///< the first `running_count_` are running; the others keep their memory for reuse
  std::size_t running_count_ = 0;
  std::priority_queue<std::pair<double, std::uint32_t>, std::vector<std::pair<double, std::uint32_t>>, std::greater<>>
      wakes_;
  std::vector<double> capacity_;
  std::vector<double> load_;
  std::vector<double> used_;
  Timeline wanted_timeline_;
  std::vector<TimedStep> timeline_;
  double last_end_us_ = 0;
  std::uint32_t cores_taken_ = 0;
  bool core_left_ = false;
  double now_us_ = 0;
};

}  // namespace strait::clock_detail
