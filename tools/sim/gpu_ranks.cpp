#include "sim/gpu_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/time_text.hpp"
#include "base/units.hpp"
#include "perf/axis.hpp"
#include "select/borders.hpp"
#include "select/cpu_reduce.hpp"
#include "sim/device_waves.hpp"

namespace strait::sim {
namespace {

using Among = IslandStep::Among;

/// The plans that kernels of GPU ranks can carry out; `staged` is `two_hop` with overlapping hops.
constexpr std::array<std::string_view, 5> kernel_plans{"one_hop", "two_hop", "staged", "direct", "barrier"};

Call call_of(const Operation& operation) {
  Call call;
  call.collective = operation.collective;
  call.type = operation.type;
  call.op = operation.op;
  call.root = operation.root;
  call.count = operation.count;
  call.wire = operation.wire;
  return call;
}

std::vector<Island> all_islands(const Machine& machine) {
  std::vector<Island> all = machine.islands;
  if (all.empty()) return all;
  for (std::uint32_t rank = 0; rank < machine.request.ranks; ++rank)
    if (std::none_of(machine.islands.begin(), machine.islands.end(), [&](const Island& island) {
          return std::find(island.begin(), island.end(), rank) != island.end();
        }))
      all.push_back({rank});
  std::sort(all.begin(), all.end());  // in the order in which communicators number them
  return all;
}

std::size_t encoded_bytes_of(const Machine& machine) {
  if (machine.encoded_bytes) return *machine.encoded_bytes;
  return machine.arena ? borders_of(*machine.arena, machine.request.ranks, machine.exchange.gbps).encoded_bytes : 0;
}

/// Predicts a call that GPU ranks carry out in several steps.
class Steps {
 public:
  Steps(const Machine& machine, const Operation& operation, const SelectOptions& options)
      : machine_(machine),
        operation_(operation),
        options_(options),
        border_bytes_(cpu_reduce_border_bytes_of(machine)),
        rules_(machine.request.ranks, all_islands(machine), encoded_bytes_of(machine)) {}

  bool exist() const { return rules_.has_steps(call_of(operation_)); }

  /// Returns the plan that GPU ranks run. With `others` also, if any sum can be added up in either way, the plan in
  /// which GPUs add what CPU threads add for GPU ranks, and vice versa.
  Result<std::vector<PredictedPlan>> plans(bool others) {
    STRAIT_ASSIGN(const auto waves, rules_.of(call_of(operation_)));
    std::vector<PredictedPlan> plans;
    for (const bool as_ranks_do : {true, false}) {
      if (!as_ranks_do && (!others || !has_sums_)) break;
      PredictedPlan plan{.algorithm = machine_.islands.empty() ? "encoded" : "islands",
                         .executor = std::string(gpu_executor),
                         .lanes = 1,
                         .time = {}};
      for (const Wave& wave : waves) STRAIT_TRY(add(plan, wave, as_ranks_do));
      settle(plan.time);
      plans.push_back(std::move(plan));
    }
    return plans;
  }

 private:
  Status add(PredictedPlan& plan, const Wave& wave, bool as_ranks_do) {
    const double begin_us = plan.time.total_us;
    PredictedStep longest;
    for (const WavePart& part : wave) {
      PredictedStep step;
      if (const auto* launch = std::get_if<WireLaunch>(&part.what)) {
        step = pass(*launch);
      } else {
        const Call& call = std::get<Call>(part.what);
        STRAIT_ASSIGN(const PredictedPlan* among, fastest(part, call, as_ranks_do));
        step = {what(part.among, call),
                larger_buffer_count(call.collective, call.count, size_of(part)) * size_bytes(call.type),
                among->algorithm, among->executor, among->time.total_us};
        append(plan, *among, begin_us);
      }
      if (step.time_us > longest.time_us) longest = std::move(step);
    }
    plan.time.total_us = begin_us + longest.time_us;
    plan.steps.push_back(std::move(longest));
    return {};
  }

  static std::uint32_t size_of(const WavePart& part) { return static_cast<std::uint32_t>(part.groups.front().size()); }

  static std::string what(Among among, const Call& call) {
    const std::string elements(call.wire == WireFormat::off ? name(call.type) : name(call.wire));
    return fmt::format("{} of {} {}", name(call.collective), elements,
                       among == Among::island   ? "within islands"
                       : among == Among::across ? "across islands"
                                                : "between all");
  }

  /// Predicts a kernel that encodes, decodes, or adds up and encodes. It reads and writes GPU memory at the rate of a
  /// copy, which reads and writes each of its bytes; hence half of the bytes.
  PredictedStep pass(const WireLaunch& launch) const {
    const kernels::WirePass& p = launch.pass;
    const std::size_t run_bytes = p.run_blocks * wire::block_bytes(launch.format);
    const std::size_t elements_bytes =
        launch.kernel == kernels::WireKernel::recode ? run_bytes : p.total_elements * size_bytes(launch.type);
    const std::size_t bytes = elements_bytes + run_bytes * p.runs * p.sources;
    constexpr std::array<std::string_view, 3> names{"encode", "decode", "add up and encode"};
    return {std::string(names[static_cast<std::size_t>(launch.kernel)]), bytes, "", std::string(gpu_executor),
            machine_.clock.call_us + static_cast<double>(bytes) / 2 / (machine_.clock.copy_gbps * bytes_per_us)};
  }

  bool by_cpus(const Call& call) const {
    return border_bytes_ > 0 && call.op != ReduceOp::premul_sum && call.count * size_bytes(call.type) >= border_bytes_;
  }

  /// Returns the fastest plan for a step among those that kernels carry out. Plans are cached, because calls of several
  /// turns repeat the same steps.
  Result<const PredictedPlan*> fastest(const WavePart& part, const Call& call, bool as_ranks_do) {
    const bool encoded = call.wire != WireFormat::off;
    const bool can = machine_.host_sums && part.among != Among::island && call.collective == Collective::all_reduce &&
                     size_of(part) > 1 && call.op != ReduceOp::premul_sum && !encoded;
    has_sums_ |= can;
    const bool cpus = can && by_cpus(call) == as_ranks_do;
    const Operation operation{call.collective, call.type, call.op, call.count,
                              has_root(call.collective) ? call.root : 0};
    const auto key =
        std::tuple(part.groups, operation.collective, operation.type, operation.count, operation.root, cpus, encoded);
    if (const auto known = known_.find(key); known != known_.end()) return &known->second;
    const Machine& whole = part.among == Among::all ? staged_ : machine_;
    const Machine machine = part_of(whole, part.groups);
    const PlanRequest request = request_for(machine, operation);
    SelectOptions options = options_;
    PredictedPlan best;
    for (const std::string_view name : kernel_plans) {
      if (!find_algorithm(name)->supports(request)) continue;
      if (encoded && call.collective == Collective::all_reduce && name == "one_hop")
        continue;  // an encoded all-reduce has two hops: sums are encoded again
      options.algorithm = name;
      STRAIT_ASSIGN(const Prediction prediction, predict(machine, operation, options));
      for (const PredictedPlan& plan : prediction.plans)
        if ((plan.executor == cpu_sums_executor) == cpus &&
            (best.algorithm.empty() || plan.time.total_us < best.time.total_us))
          best = plan;
      if (best.algorithm == name) {
        STRAIT_ASSIGN(best.plan, build_plan(machine, operation, best));
      }
    }
    if (best.algorithm.empty())
      return fail(Code::internal_error, "no kernel carries out a step: " + what(part.among, call));
    return &known_.emplace(key, std::move(best)).first->second;
  }

  /// Appends a step's plan, timeline and use of resources to those of the whole call. The step gets lanes of its own,
  /// and its links and signals get tags of their own.
  void append(PredictedPlan& all, const PredictedPlan& step, double begin_us) {
    if (all.plan.size() < step.plan.size()) {
      RankPlan idle = step.plan.front();
      idle.collective = operation_.collective;
      idle.algorithm = all.algorithm;
      idle.ranks = machine_.request.ranks;
      idle.lanes.clear();
      idle.links.clear();
      idle.signals.clear();
      all.plan.resize(step.plan.size(), idle);
    }
    if (step.executor == cpu_sums_executor) all.executor = cpu_sums_executor;
    all.lanes = std::max(all.lanes, step.lanes);
    all.slice_bytes = std::max(all.slice_bytes, step.slice_bytes);
    std::vector<std::uint32_t> lanes_before;
    constexpr std::uint16_t tags_of_a_step = 64;
    const auto tags = static_cast<std::uint16_t>(tags_of_a_step * appended_++);
    for (std::uint32_t rank = 0; rank < step.plan.size(); ++rank) {
      RankPlan& mine = all.plan[rank];
      mine.rank = rank;
      lanes_before.push_back(static_cast<std::uint32_t>(mine.lanes.size()));
      append(mine, step.plan[rank], tags);
    }
    for (TimedStep timed : step.time.timeline) {
      timed.lane += lanes_before[timed.rank];
      timed.begin_us += begin_us;
      timed.end_us += begin_us;
      all.time.timeline.push_back(timed);
    }
    auto& resources = all.time.resources;
    if (resources.size() < step.time.resources.size()) resources.resize(step.time.resources.size());
    for (std::size_t i = 0; i < step.time.resources.size(); ++i) {
      resources[i].name = step.time.resources[i].name;
      // A time in microseconds, until settle() turns it into a share.
      resources[i].busy += step.time.resources[i].busy * step.time.total_us;
    }
  }

  static void append(RankPlan& mine, RankPlan step, std::uint16_t tags) {
    const auto links = static_cast<std::uint16_t>(mine.links.size());
    const auto signals = static_cast<std::uint16_t>(mine.signals.size());
    for (Lane& lane : step.lanes) {
      for (Step& each : lane.steps) {
        for (auto* operands : {&each.sources, &each.destinations})
          for (Operand& operand : *operands) operand.link = static_cast<std::uint16_t>(operand.link + links);
        for (auto* ends : {&each.waits, &each.signals})
          for (std::uint16_t& end : *ends) end = static_cast<std::uint16_t>(end + signals);
      }
      mine.lanes.push_back(std::move(lane));
    }
    for (LinkEnd& link : step.links) {
      link.tag = static_cast<std::uint16_t>(link.tag + tags);
      mine.links.push_back(std::move(link));
    }
    for (SignalEnd& signal : step.signals) {
      signal.tag = static_cast<std::uint16_t>(signal.tag + tags);
      mine.signals.push_back(signal);
    }
  }

  static void settle(ClockResult& time) {
    for (ResourceUse& use : time.resources) use.busy /= time.total_us;
    time.binding = binding_of(time.resources);
  }

  using Key = std::tuple<std::vector<Island>, Collective, DataType, std::size_t, std::uint32_t, bool, bool>;
  const Machine& machine_;
  const Machine staged_ = without_islands(machine_);
  const Operation& operation_;
  SelectOptions options_;
  std::size_t border_bytes_;
  DeviceWaves rules_;
  std::map<Key, PredictedPlan> known_;
  std::uint32_t appended_ = 0;
  bool has_sums_ = false;  ///< whether any step is a sum that CPU threads could add up
};

/// For an exact call without steps: marks the plans that GPU ranks run (those of kernels, added up by GPUs or, from the
/// border on, by CPU threads), and moves them to the front.
void choose_executor(const Machine& machine, const Operation& operation, Prediction& prediction) {
  const std::size_t border = cpu_reduce_border_bytes_of(machine);
  const std::size_t bytes = operation.count * size_bytes(operation.type);
  const bool cpus = operation.collective == Collective::all_reduce && operation.op != ReduceOp::premul_sum &&
                    border > 0 && bytes >= border;
  for (PredictedPlan& plan : prediction.plans)
    plan.runs = plan.in_class && is_carried_out(plan) && (cpus || plan.executor != cpu_sums_executor);
  std::stable_partition(prediction.plans.begin(), prediction.plans.end(),
                        [](const PredictedPlan& plan) { return plan.runs; });
}

/// Says that GPU ranks carry out a long broadcast or reduce in two hops, for which the clock has no plan; "" if they do
/// not.
std::string two_hops_text(const Machine& machine, const Operation& operation) {
  const std::uint32_t ranks = machine.request.ranks;
  if (!machine.arena || *machine.arena == kernels::ArenaKind::host || ranks < 3) return "";
  const bool reduces = operation.collective == Collective::reduce;
  if (!reduces && operation.collective != Collective::broadcast) return "";
  const Borders borders = borders_of(*machine.arena, ranks, machine.exchange.gbps);
  const std::size_t border = reduces ? borders.one_hop_reduce_bytes : borders.one_hop_bytes;
  if (operation.count * size_bytes(operation.type) <= border) return "";
  return fmt::format("; beyond {} GPU ranks take two hops, which are not predicted, and less time",
                     perf::bytes_label(static_cast<double>(border)));
}

Status check_wire(const Machine& machine, const Operation& operation, const SelectOptions& options) {
  if (operation.wire == WireFormat::off) return {};
  if (const std::string problem = wire_problem(call_of(operation)); !problem.empty())
    return fail(Code::invalid_argument, problem);
  if (!machine.arena) return fail(Code::unsupported, "wire formats are predicted for GPU ranks of one host only");
  if (!options.algorithm.empty())
    return fail(Code::unsupported,
                "a call in a wire format is no plan but several steps. Leave out the algorithm, or "
                "the format");
  return {};
}

std::string sums_text(const Machine& machine, const Operation& operation) {
  if (operation.collective != Collective::all_reduce || machine.arena != kernels::ArenaKind::host) return "";
  const std::size_t border = cpu_reduce_border_bytes_of(machine);
  if (border == 0) return "; GPUs add up, for on CPUs that promises too little here";
  return fmt::format("; CPU threads add up from {} on, and GPUs below", perf::bytes_label(static_cast<double>(border)));
}

std::string why_of(const Machine& machine, const Operation& operation, const PredictedPlan& choice) {
  std::string why = fmt::format("{} ({}), predicted {}, bound by {}", choice.algorithm, choice.executor,
                                time_text(choice.time.total_us), choice.time.binding);
  if (!machine.islands.empty() && choice.algorithm == "islands")
    why += "; GPU ranks trade within their islands first, whatever the type, and so no byte crosses to an island twice";
  if (operation.wire != WireFormat::off) return why + fmt::format("; {} was asked for", name(operation.wire));
  return why + sums_text(machine, operation);
}

/// Marks whether GPU ranks run the plan that the user named.
Prediction as_asked_for(const Machine& machine, Prediction prediction) {
  if (machine.arena)
    for (PredictedPlan& plan : prediction.plans) plan.runs = is_carried_out(plan);
  if (!prediction.choice().runs) prediction.why += "; GPU ranks never run it, for no kernel carries it out";
  return prediction;
}

}  // namespace

bool is_carried_out(const PredictedPlan& plan) {
  return std::find(kernel_plans.begin(), kernel_plans.end(), plan.algorithm) != kernel_plans.end();
}

std::size_t cpu_reduce_border_bytes_of(const Machine& machine) {
  if (machine.arena != kernels::ArenaKind::host) return 0;
  const std::uint32_t ranks = machine.request.ranks;
  std::uint32_t meeting = ranks;
  for (const auto& island : machine.islands) meeting -= static_cast<std::uint32_t>(island.size()) - 1;
  const bool alike = std::all_of(machine.islands.begin(), machine.islands.end(),
                                 [&](const auto& island) { return meeting * island.size() == ranks; });
  return cpu_reduce_border_bytes(meeting, alike ? ranks : meeting, ranks, machine.exchange);
}

std::string_view caveat_of(const Machine& machine) {
  if (!machine.gpus || machine.arena) return "";
  return "GPU ranks of several hosts are not predicted, so this is what would be possible, not what they run";
}

Result<Prediction> predict_ranks(const Machine& machine, const Operation& operation, const SelectOptions& options,
                                 bool others, const Progress& progress) {
  STRAIT_TRY(check(machine, operation));
  STRAIT_TRY(check_wire(machine, operation, options));
  Operation exact = operation;
  exact.wire = WireFormat::off;
  Steps steps(machine, operation, options);
  if (!machine.arena || !options.algorithm.empty() || !steps.exist()) {
    const Machine staged = options.algorithm.empty() ? without_islands(machine) : machine;
    STRAIT_ASSIGN(Prediction prediction, predict(staged, exact, options, others, progress));
    if (!options.algorithm.empty()) return as_asked_for(machine, std::move(prediction));
    if (machine.arena) choose_executor(machine, operation, prediction);
    prediction.why = why_chosen(staged, exact, prediction.plans, false) + sums_text(machine, operation) +
                     two_hops_text(machine, operation);
    if (const auto caveat = caveat_of(machine); !caveat.empty()) prediction.why += "; " + std::string(caveat);
    for (PredictedPlan& plan : prediction.plans)
      if (machine.staged) {
        STRAIT_ASSIGN(plan.plan, build_plan(staged, exact, plan));
      }
    return prediction;
  }
  Prediction prediction;
  STRAIT_ASSIGN(prediction.plans, steps.plans(others));
  prediction.why = why_of(machine, operation, prediction.choice());
  for (std::size_t i = 1; i < prediction.plans.size(); ++i) prediction.plans[i].runs = false;
  if (!others) return prediction;
  STRAIT_ASSIGN(Prediction exactly,
                operation.wire == WireFormat::off ? predict(machine, exact, {}, true) : predict_ranks(machine, exact));
  for (PredictedPlan& plan : exactly.plans) {
    plan.runs = false;
    prediction.plans.push_back(std::move(plan));
  }
  return prediction;
}

}  // namespace strait::sim
