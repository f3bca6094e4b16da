#include "plan/clock.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/units.hpp"
#include "plan/clock_simulation.hpp"

namespace strait {

std::string binding_of(const std::vector<ResourceUse>& resources) {
  constexpr double same = 1e-9;
  double most = 0.5 - 2 * same;
  std::string binding = "latency";
  for (const ResourceUse& use : resources)
    if (use.busy > most + same) {
      most = use.busy;
      binding = use.name;
    }
  return binding;
}

Layout layout_of(const RankPlan& plan, const ClockSize& size) {
  Layout layout(plan, size.count, size.element_bytes, size.slice_bytes);
  if (plan.collective == Collective::barrier) layout.slices = 1;
  return layout;
}

namespace clock_detail {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::uint16_t cores_resource = 0;
constexpr std::uint16_t dram_resource = 1;

/// Returns how many links and signals the step uses.
std::size_t ends_of(const Step& step) {
  const auto is_link = [](const Operand& operand) {
    return operand.kind == Operand::Kind::send || operand.kind == Operand::Kind::receive;
  };
  return step.waits.size() + step.signals.size() +
         static_cast<std::size_t>(std::count_if(step.sources.begin(), step.sources.end(), is_link) +
                                  std::count_if(step.destinations.begin(), step.destinations.end(), is_link));
}

}  // namespace

Simulation::Simulation(const Plan& plan, const ClockSize& size, const ClockModel& model, std::uint32_t slices,
                       Timeline timeline)
    : plan_(plan),
      size_(size),
      model_(model),
      layout_(layout_of(plan.front(), size)),
      slices_(std::min(layout_.slices, slices)),
      memory_(plan, size, model, layout_, slices_),
      wanted_timeline_(timeline) {
  capacity_ = {model.cores == 0 ? never : model.cores, model.dram_gbps == 0 ? never : model.dram_gbps};
  for (const ClockResource& resource : model.resources) capacity_.push_back(resource.gbps);
  load_.assign(capacity_.size(), 0);
  used_.assign(capacity_.size(), 0);
  connect();
}

double Simulation::ready_at(std::uint32_t rank, const Step& step) {
  const RankClock& state = ranks_[rank];
  double when = 0;
  for (const std::uint16_t wait : step.waits) {
    const Counter& counter = counters_[state.counters[wait]];
    if (counter.taken == counter.added.size()) return never;
    when = std::max(when, counter.added[counter.taken]);
  }
  for (const Operand& source : step.sources) {
    if (source.kind != Operand::Kind::receive) continue;
    const Channel& channel = channels_[state.channels[source.link]];
    const std::uint32_t next = state.next_message[source.link];
    if (next == channel.messages.size()) return never;
    when = std::max(when, channel.messages[next].published + latency(channel.writer, rank));
  }
  for (const Operand& destination : step.destinations) {
    if (destination.kind != Operand::Kind::send) continue;
    const Channel& channel = channels_[state.channels[destination.link]];
    const std::size_t next = channel.messages.size();
    if (next < model_.slots) continue;
    const Message& earlier = channel.messages[next - model_.slots];
    if (earlier.readers_left > 0) return never;
    when = std::max(when, earlier.released + latency(channel.readers.front(), rank));
  }
  return when;
}

/// Starts all steps that are ready. Repeats when a rank gives up its core, because another rank may wait for a core.
void Simulation::start_all_ready() {
  do {
    core_left_ = false;
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].may_be_ready) start_ready(rank);
  } while (core_left_);
}

/// Gives the rank a core if one is free. A rank keeps its core until it blocks, like a thread that yields only then.
bool Simulation::take_core(RankClock& state) {
  if (state.on_core || model_.cores == 0) return true;
  if (cores_taken_ == model_.cores) return false;
  ++cores_taken_;
  return state.on_core = true;
}

void Simulation::start_ready(std::uint32_t rank) {
  RankClock& state = ranks_[rank];
  state.may_be_ready = false;
  for (std::uint32_t lane = 0; lane < state.lanes.size() && state.running < model_.lanes_at_once; ++lane) {
    const LaneClock& clock = state.lanes[lane];
    if (clock.running || clock.finished) continue;
    const double when = ready_at(rank, plan_[rank].lanes[lane].steps[clock.step]);
    if (when <= now_us_) {
      if (!take_core(state)) {
        state.may_be_ready = true;  // retried once a core is free
        return;
      }
      start(rank, lane);
    } else if (when < never) {
      stir_later(rank, when);
    }
  }
  if (state.running > 0 || !state.on_core) return;
  state.on_core = false;
  state.gave_way = true;
  --cores_taken_;
  core_left_ = true;
}

double Simulation::bytes_of(const Operand& operand, std::uint32_t slice) const {
  if (operand.buffer == Buffer::scratch) return 0;
  return static_cast<double>(layout_.slice_of(operand.chunk, slice).count * size_.element_bytes);
}

/// Adds the cost of an operand beyond the copying within the rank's own cache, which ClockModel::move_us() counts.
void Simulation::add_work(Running& running, const Operand& operand, std::uint32_t slice, double bytes,
                          std::optional<Writes> writes) {
  const bool reads = !writes;
  const ClockMemory::Cost cost = reads ? memory_.read(running.rank, operand, slice, bytes)
                                       : memory_.write(running.rank, operand, slice, bytes, *writes);
  running.left_us += cost.us;
  if (cost.dram_bytes > 0) add_demand(running, dram_resource, cost.dram_bytes);
  std::uint32_t from = running.rank;
  std::uint32_t to = running.rank;
  if (operand.kind == Operand::Kind::local) return;
  if (operand.kind == Operand::Kind::receive) from = channels_[ranks_[running.rank].channels[operand.link]].writer;
  if (operand.kind == Operand::Kind::peer) (reads ? from : to) = operand.peer;
  if (operand.kind == Operand::Kind::send && !model_.writes.empty())
    return cross(running, path_to(channels_[ranks_[running.rank].channels[operand.link]]), bytes);
  cross(running, model_.paths[from * model_.ranks + to], bytes);
}

/// Adds to an existing demand, because several operands of a step may use the same resource.
void Simulation::add_demand(Running& running, std::uint16_t resource, double bytes) {
  for (Demand& demand : running.demands)
    if (demand.resource == resource) {
      demand.rate += bytes;
      return;
    }
  running.demands.push_back({resource, bytes});
}

void Simulation::cross(Running& running, const ClockPath& path, double bytes) const {
  if (path.gbps > 0) running.left_us += bytes / (path.gbps * bytes_per_us);
  for (const std::uint16_t resource : path.resources)
    add_demand(running, static_cast<std::uint16_t>(resource + 2), bytes);
}

/// Returns the combined path to the slots of all readers.
ClockPath Simulation::path_to(const Channel& channel) const {
  ClockPath all = model_.writes[channel.writer * model_.ranks + channel.readers.front()];
  for (const std::uint32_t reader : channel.readers) {
    const ClockPath& path = model_.writes[channel.writer * model_.ranks + reader];
    if (path.gbps > 0) all.gbps = all.gbps > 0 ? std::min(all.gbps, path.gbps) : path.gbps;
    for (const std::uint16_t resource : path.resources)
      if (std::find(all.resources.begin(), all.resources.end(), resource) == all.resources.end())
        all.resources.push_back(resource);
  }
  return all;
}

Running& Simulation::add_running() {
  if (running_count_ == running_.size()) running_.emplace_back();
  Running& running = running_[running_count_++];
  running.demands.clear();
  return running;
}

void Simulation::start(std::uint32_t rank, std::uint32_t lane) {
  RankClock& state = ranks_[rank];
  LaneClock& clock = state.lanes[lane];
  const Step& step = plan_[rank].lanes[lane].steps[clock.step];
  Running& running = add_running();
  running.rank = rank;
  running.lane = lane;
  running.left_us = model_.step_us;
  running.begin_us = now_us_;
  // No switch is charged between the last step of an operation and the first one of the next.
  if (state.gave_way && model_.cores < model_.ranks) running.left_us += model_.switch_us;
  double bytes = 0;
  for (const Operand& operand : step.sources) bytes = std::max(bytes, bytes_of(operand, clock.slice));
  for (const Operand& operand : step.destinations) bytes = std::max(bytes, bytes_of(operand, clock.slice));
  running.left_us += model_.move_us(step, bytes) + model_.links_us(ends_of(step));
  for (const Operand& source : step.sources) add_work(running, source, clock.slice, bytes, {});
  const Writes writes = step.destinations.size() > 1 ? Writes::beside : Writes::alone;
  for (const Operand& destination : step.destinations) add_work(running, destination, clock.slice, bytes, writes);
  for (const std::uint16_t wait : step.waits) ++counters_[state.counters[wait]].taken;
  running.left_us = std::max(running.left_us, 1e-6);
  // Up to here demands are in bytes; from here on they are rates at full speed.
  for (Demand& demand : running.demands) demand.rate /= running.left_us * bytes_per_us;
  running.demands.push_back({cores_resource, 1});
  for (const Demand& demand : running.demands) load_[demand.resource] += demand.rate;
  clock.running = true;
  state.gave_way = false;
  ++state.running;
}

void Simulation::finish(const Running& done) {
  RankClock& state = ranks_[done.rank];
  LaneClock& clock = state.lanes[done.lane];
  const Lane& lane = plan_[done.rank].lanes[done.lane];
  const Step& step = lane.steps[clock.step];
  last_end_us_ = now_us_;
  if (wanted_timeline_ == Timeline::kept)
    timeline_.push_back({done.rank, done.lane, clock.step, clock.slice, done.begin_us, now_us_});
  for (const Operand& source : step.sources) {
    if (source.kind != Operand::Kind::receive) continue;
    Channel& channel = channels_[state.channels[source.link]];
    Message& message = channel.messages[state.next_message[source.link]++];
    message.released = now_us_;
    if (--message.readers_left == 0) ranks_[channel.writer].may_be_ready = true;
  }
  for (const Operand& destination : step.destinations) {
    if (destination.kind != Operand::Kind::send) continue;
    Channel& channel = channels_[state.channels[destination.link]];
    channel.messages.push_back({now_us_, 0, static_cast<std::uint32_t>(channel.readers.size())});
    for (const std::uint32_t reader : channel.readers) ranks_[reader].may_be_ready = true;
  }
  for (const std::uint16_t signal : step.signals) {
    const std::uint32_t to = plan_[done.rank].signals[signal].to;
    counters_[state.counters[signal]].added.push_back(now_us_ + latency(done.rank, to));
    ranks_[to].may_be_ready = true;
  }
  clock.running = false;
  --state.running;
  state.may_be_ready = true;
  if (++clock.step < lane.steps.size()) return;
  clock.step = 0;
  clock.finished = ++clock.slice == slices_;
}

void Simulation::set_speeds() {
  for (Running& running : std::span(running_.data(), running_count_)) {
    running.speed = 1;
    for (const Demand& demand : running.demands)
      if (load_[demand.resource] > capacity_[demand.resource] && demand.rate > 0)
        running.speed = std::min(running.speed, capacity_[demand.resource] / load_[demand.resource]);
  }
}

/// Advances the time until the next step ends or something becomes visible. Returns `never` if nothing will.
double Simulation::advance() {
  set_speeds();
  double until = wakes_.empty() ? never : wakes_.top().first;
  const std::span<Running> all(running_.data(), running_count_);
  for (const Running& running : all) until = std::min(until, now_us_ + running.left_us / running.speed);
  if (until == never) return never;
  const double passed = std::max(0.0, until - now_us_);
  now_us_ = std::max(now_us_, until);
  for (Running& running : all) {
    running.left_us -= passed * running.speed;
    for (const Demand& demand : running.demands) used_[demand.resource] += passed * running.speed * demand.rate;
  }
  // The remaining time of a step that ends now is off by the rounding error of the current time, which after ten
  // seconds exceeds any fixed tolerance. The step that defined `until` must count as finished, or time would stand
  // still.
  const double rounding_us = 4 * std::numeric_limits<double>::epsilon() * now_us_;
  for (std::size_t i = 0; i < running_count_;) {
    if (running_[i].left_us > std::max(1e-9, rounding_us * running_[i].speed)) {
      ++i;
      continue;
    }
    for (const Demand& demand : running_[i].demands) load_[demand.resource] -= demand.rate;
    finish(running_[i]);
    std::swap(running_[i], running_[--running_count_]);
  }
  for (; !wakes_.empty() && wakes_.top().first <= now_us_; wakes_.pop())
    ranks_[wakes_.top().second].may_be_ready = true;
  return now_us_;
}

Result<ClockResult> Simulation::run() {
  do {
    start_all_ready();
  } while (advance() != never);
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
    for (std::size_t lane = 0; lane < ranks_[rank].lanes.size(); ++lane)
      if (!ranks_[rank].lanes[lane].finished)
        return fail(Code::internal_error, "the plan '" + plan_[rank].algorithm + "' blocks for ever with " +
                                              std::to_string(model_.slots) + " slots a link: rank " +
                                              std::to_string(rank) + ", lane " + std::to_string(lane) + ", step " +
                                              std::to_string(ranks_[rank].lanes[lane].step));
  return result();
}

ClockResult Simulation::result() const {
  ClockResult result;
  result.slices = layout_.slices;
  result.simulated_slices = slices_;
  result.timeline = timeline_;
  if (last_end_us_ > 0) result.total_us = last_end_us_ + model_.call_us;
  std::vector<std::string> names{"cores", "dram"};
  for (const ClockResource& resource : model_.resources) names.push_back(resource.name);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double busy = result.total_us > 0 && capacity_[i] < never ? used_[i] / (capacity_[i] * result.total_us) : 0;
    result.resources.push_back({names[i], busy});
  }
  result.binding = binding_of(result.resources);
  return result;
}

}  // namespace clock_detail

namespace {

Result<ClockResult> simulate_by_rates(const Plan& plan, const ClockSize& size, const ClockModel& model,
                                      Timeline timeline) {
  const std::size_t pairs = std::size_t{model.ranks} * model.ranks;
  if (plan.empty() || plan.size() != model.ranks || model.paths.size() != pairs ||
      (!model.writes.empty() && model.writes.size() != pairs))
    return fail(Code::invalid_argument, "the clock model is for " + std::to_string(model.ranks) +
                                            " ranks, the plan for " + std::to_string(plan.size()));
  using clock_detail::Simulation;
  auto result = Simulation(plan, size, model, most_simulated_slices, timeline).run();
  if (!result || result->slices <= most_simulated_slices) return result;
  // Every further slice adds what the second half of the simulated slices adds; both runs include filling and draining
  // the pipeline.
  constexpr std::uint32_t half = most_simulated_slices / 2;
  STRAIT_ASSIGN(const ClockResult shorter, Simulation(plan, size, model, half, Timeline::none).run());
  const auto extrapolated = [&](double longer, double less) {
    return longer + (longer - less) / half * (result->slices - most_simulated_slices);
  };
  const double total_us = extrapolated(result->total_us, shorter.total_us);
  for (std::size_t i = 0; i < result->resources.size(); ++i) {
    double& busy = result->resources[i].busy;
    busy = extrapolated(busy * result->total_us, shorter.resources[i].busy * shorter.total_us) / total_us;
  }
  // If the pipeline has not reached a steady state, the extrapolated use of a resource could exceed 100%; stretch the
  // time instead.
  double most = 1;
  for (const ResourceUse& use : result->resources) most = std::max(most, use.busy);
  for (ResourceUse& use : result->resources) use.busy /= most;
  result->total_us = most * total_us;
  result->binding = binding_of(result->resources);
  return result;
}

}  // namespace

Result<ClockResult> simulate(const Plan& plan, const ClockSize& size, const ClockModel& model, Timeline timeline) {
  auto result = simulate_by_rates(plan, size, model, timeline);
  if (!result) return result;
  const RankPlan& any = plan.front();
  const std::size_t bytes = larger_buffer_count(any.collective, size.count, any.ranks) * size.element_bytes;
  result->total_us *= model.ratios.of(any.collective, any.algorithm, bytes);
  return result;
}

}  // namespace strait
