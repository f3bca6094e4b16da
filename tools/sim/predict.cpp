#include "sim/predict.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/time_text.hpp"
#include "select/selector.hpp"

namespace strait {
namespace {

/// The slice sizes to try. A lane of a GPU plan is run by thread blocks or by a copy engine, so slices are larger than
/// those of a CPU core.
constexpr std::array<std::size_t, 6> gpu_slices_bytes{8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20};
/// The numbers of lanes to try. Each lane is a set of thread blocks or a stream; with several, some can be in one phase
/// of the plan while others are in another.
constexpr std::array<std::uint32_t, 2> gpu_lanes{1, 4};
constexpr std::uint32_t most_ranks_with_lanes =
    32;  // with more, the clock takes long, and phases overlap without several lanes

ClockSize size_of(const Operation& operation, std::size_t slice_bytes) {
  return {.count = operation.count, .element_bytes = size_bytes(operation.type), .slice_bytes = slice_bytes};
}

std::uint32_t slices_of(const Plan& plan, const ClockSize& size) { return layout_of(plan.front(), size).slices; }

/// Returns the number of steps that the clock simulates.
std::size_t simulated_steps(const Plan& plan, const ClockSize& size) {
  std::size_t steps = 0;
  for (const RankPlan& rank : plan) steps += rank.steps();
  return steps * std::min(slices_of(plan, size), most_simulated_slices);
}

/// Builds the plans of all ranks. In a part of a machine, kernels carry them out.
Plan built(const Algorithm& algorithm, const PlanRequest& request, const Machine& machine) {
  Plan plan = build_all(algorithm, request);
  return machine.groups.empty() ? plan : with_receives_in_own_lanes(std::move(plan));
}

void keep_faster(std::vector<PredictedPlan>& plans, PredictedPlan plan) {
  const auto same = std::find_if(plans.begin(), plans.end(), [&](const PredictedPlan& other) {
    return other.algorithm == plan.algorithm && other.executor == plan.executor;
  });
  if (same == plans.end())
    plans.push_back(std::move(plan));
  else if (plan.time.total_us < same->time.total_us)
    *same = std::move(plan);
}

class Predictor {
 public:
  Predictor(const Machine& machine, const Operation& operation, SelectOptions options, bool others,
            const Progress& progress)
      : machine_(machine),
        operation_(operation),
        options_(std::move(options)),
        others_(others),
        progress_(progress),
        request_(request_for(machine, operation)),
        wanted_(numerics_class(request_, operation.type, operation.op)) {}

  Result<std::vector<PredictedPlan>> plans() {
    if (!options_.algorithm.empty()) {
      const Algorithm* forced = find_algorithm(options_.algorithm);
      if (forced == nullptr || !forced->supports(request_)) return refusal();
    }
    if (machine_.gpus)
      STRAIT_TRY(add_gpu_plans());
    else
      STRAIT_TRY(add_cpu_plans());
    if (plans_.empty()) return refusal();
    std::stable_sort(plans_.begin(), plans_.end(), [this](const PredictedPlan& a, const PredictedPlan& b) {
      if (a.in_class != b.in_class) return a.in_class;
      if ((a.algorithm == chosen_) != (b.algorithm == chosen_)) return a.algorithm == chosen_;
      return a.time.total_us < b.time.total_us;
    });
    return std::move(plans_);
  }

 private:
  /// Returns the error in the words of the selection.
  tl::unexpected<Error> refusal() const {
    const auto choice = choose(request_, operation_.type, operation_.op, operation_.count, machine_.clock, options_);
    if (!choice) return tl::unexpected(choice.error());
    return fail(Code::unsupported, "no algorithm does this operation");
  }

  bool in_class(const Algorithm& algorithm) const { return wanted_ == Numerics::rounded || algorithm.sums == wanted_; }

  /// Returns the forced algorithm alone, or those of the class, with the others if they are asked for.
  std::vector<const Algorithm*> candidates() const {
    std::vector<const Algorithm*> some;
    for (const Algorithm& algorithm : catalogue()) {
      if (!algorithm.supports(request_)) continue;
      if (options_.algorithm.empty() ? others_ || in_class(algorithm) : algorithm.name == options_.algorithm)
        some.push_back(&algorithm);
    }
    return some;
  }

  /// Adds the plans that the library compares for host ranks; those outside the class as if each were forced.
  Status add_cpu_plans() {
    std::vector<SelectOptions> questions{options_};
    for (const Algorithm* algorithm : candidates())
      if (options_.algorithm.empty() && !in_class(*algorithm)) {
        questions.push_back(options_);
        questions.back().algorithm = algorithm->name;
      }
    if (request_.ranks > Selector::most_simulated_ranks) return add_estimates(questions);
    for (const SelectOptions& question : questions) {
      STRAIT_ASSIGN(const Choice choice,
                    choose(request_, operation_.type, operation_.op, operation_.count, machine_.clock, question));
      if (chosen_.empty()) chosen_ = choice.algorithm;
      for (const Alternative& alternative : choice.alternatives) {
        const Algorithm& algorithm = *find_algorithm(alternative.algorithm);
        STRAIT_TRY(add(algorithm, "CPU", 1, alternative.slice_bytes, build_all(algorithm, request_), machine_.clock));
      }
    }
    return {};
  }

  Status add_estimates(const std::vector<SelectOptions>& questions) {
    const LevelModel levels = level_model(machine_.clock);
    for (const SelectOptions& question : questions) {
      const auto choice = choose(request_, operation_.type, operation_.op, operation_.count, levels, question);
      if (!choice && choice.error().code == Code::unsupported && !plans_.empty()) continue;  // too many steps to walk
      if (!choice) return tl::unexpected(choice.error());
      if (chosen_.empty()) chosen_ = choice->algorithm;
      for (const Alternative& alternative : choice->alternatives) {
        ClockResult time{
            .total_us = alternative.predicted_us, .resources = {}, .binding = alternative.binding, .timeline = {}};
        plans_.push_back({.algorithm = alternative.algorithm,
                          .executor = "CPU",
                          .in_class = in_class(*find_algorithm(alternative.algorithm)),
                          .slice_bytes = alternative.slice_bytes,
                          .time = std::move(time),
                          .estimated = true,
                          .at_least = alternative.at_least});
      }
    }
    return {};
  }

  Status add_gpu_plans() {
    for (const Algorithm* algorithm : candidates()) {
      if (progress_) progress_(std::string(algorithm->name));
      for (const std::uint32_t lanes : gpu_lanes) {
        if (lanes > 1 && request_.ranks > most_ranks_with_lanes) continue;
        PlanRequest request = request_;
        request.lanes = lanes;
        const Plan plan = built(*algorithm, request, machine_);
        STRAIT_TRY(add_slices(*algorithm, gpu_executor, lanes, for_groups(plan, machine_), machine_.clock));
        if (machine_.host_sums && has_host_sums(plan))
          STRAIT_TRY(add_slices(*algorithm, cpu_sums_executor, lanes, for_groups(with_host_sums(plan), machine_),
                                *machine_.host_sums));
      }
    }
    return {};
  }

  Status add_slices(const Algorithm& algorithm, std::string_view executor, std::uint32_t lanes, const Plan& plan,
                    const ClockModel& clock) {
    std::vector<std::size_t> sizes{gpu_slices_bytes.begin(), gpu_slices_bytes.end()};
    if (options_.slice_bytes > 0) sizes = {options_.slice_bytes};
    const auto whole = std::find_if(sizes.begin(), sizes.end(), [&](std::size_t slice_bytes) {
      return slice_bytes >= operation_.count * size_bytes(operation_.type) ||
             slices_of(plan, size_of(operation_, slice_bytes)) <= 1;
    });
    if (whole != sizes.end()) sizes.erase(whole + 1, sizes.end());  // larger slices give the same plan
    const bool is_large = request_.ranks > most_ranks_with_all_slices;
    if (is_large) std::reverse(sizes.begin(), sizes.end());
    double fastest_us = std::numeric_limits<double>::infinity();
    for (const std::size_t slice_bytes : sizes) {
      if (is_large && slice_bytes != sizes.front() &&
          simulated_steps(plan, size_of(operation_, slice_bytes)) > most_steps_of_small_slices)
        break;
      STRAIT_ASSIGN(const double time_us, add(algorithm, executor, lanes, slice_bytes, plan, clock));
      if (is_large && time_us > fastest_us) break;
      fastest_us = std::min(fastest_us, time_us);
    }
    return {};
  }

  Result<double> add(const Algorithm& algorithm, std::string_view executor, std::uint32_t lanes,
                     std::size_t slice_bytes, const Plan& plan, const ClockModel& clock) {
    PredictedPlan predicted{.algorithm = std::string(algorithm.name),
                            .executor = std::string(executor),
                            .in_class = in_class(algorithm),
                            .lanes = lanes,
                            .slice_bytes = slice_bytes,
                            .time = {}};
    STRAIT_ASSIGN(predicted.time, simulate(plan, size_of(operation_, slice_bytes), clock));
    const double time_us = predicted.time.total_us;
    keep_faster(plans_, std::move(predicted));
    return time_us;
  }

  const Machine& machine_;
  const Operation& operation_;
  SelectOptions options_;
  bool others_;
  const Progress& progress_;
  PlanRequest request_;
  Numerics wanted_;
  std::vector<PredictedPlan> plans_;
  std::string chosen_;  ///< the library's choice for host ranks; of GPU plans the fastest is chosen
};

}  // namespace

PlanRequest request_for(const Machine& machine, const Operation& operation) {
  PlanRequest request = machine.request;
  request.collective = operation.collective;
  request.root = operation.root;
  return request;
}

std::string why_chosen(const Machine& machine, const Operation& operation, const std::vector<PredictedPlan>& plans,
                       bool forced) {
  const PlanRequest request = request_for(machine, operation);
  const bool one_rounding = numerics_class(request, operation.type, operation.op) == Numerics::rank_order;
  const PredictedPlan& best = plans.front();
  std::string why = best.algorithm + " (" + best.executor + "), predicted " + time_text(best.time.total_us) +
                    ", bound by " + best.time.binding;
  if (forced) return why + "; it was asked for";
  if (plans.size() > 1 && plans[1].in_class && plans[1].runs) {
    const PredictedPlan& next = plans[1];
    why += "; next is " + next.algorithm + " (" + next.executor + ") with " + (next.at_least ? "at least " : "") +
           time_text(next.time.total_us);
    if (next.time.total_us < best.time.total_us) why += why_simpler(request, best.algorithm, next.algorithm);
  }
  return why + (one_rounding ? "; of those that add in rank order and round once" : "");
}

Status check(const Machine& machine, const Operation& operation) {
  if (operation.collective == Collective::send_recv || operation.collective == Collective::all_to_all_v)
    return fail(Code::unsupported, std::string(name(operation.collective)) +
                                       " depends on what each rank posts, so it is not predicted. Take another "
                                       "collective, such as all-to-all");
  if (operation.root >= machine.request.ranks)
    return fail(Code::invalid_argument, "root " + std::to_string(operation.root) + " is not a rank: there are " +
                                            std::to_string(machine.request.ranks));
  return {};
}

Result<Prediction> predict(const Machine& machine, const Operation& operation, const SelectOptions& options,
                           bool others, const Progress& progress) {
  STRAIT_TRY(check(machine, operation));
  STRAIT_ASSIGN(auto plans, Predictor(machine, operation, options, others, progress).plans());
  std::string why = why_chosen(machine, operation, plans, !options.algorithm.empty());
  return Prediction{std::move(why), std::move(plans)};
}

Result<Plan> build_plan(const Machine& machine, const Operation& operation, const PredictedPlan& predicted) {
  if (!predicted.plan.empty()) return predicted.plan;
  const Algorithm* algorithm = find_algorithm(predicted.algorithm);
  if (algorithm == nullptr) return fail(Code::internal_error, "the algorithm '" + predicted.algorithm + "' is unknown");
  PlanRequest request = request_for(machine, operation);
  request.lanes = predicted.lanes;
  const Plan plan = built(*algorithm, request, machine);
  return for_groups(predicted.executor == cpu_sums_executor ? with_host_sums(plan) : plan, machine);
}

}  // namespace strait
