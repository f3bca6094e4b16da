#include "select/select.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "base/time_text.hpp"
#include "plan/layout.hpp"

namespace strait {
namespace {

constexpr std::array<std::size_t, 5> slice_sizes_bytes{16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10};

bool in_class(const Algorithm& algorithm, const PlanRequest& request, Numerics wanted) {
  return algorithm.supports(request) && (wanted == Numerics::rounded || algorithm.sums == wanted);
}

/// Returns the algorithms to compare: those of the class, or the forced one.
Result<std::vector<const Algorithm*>> candidates(const PlanRequest& request, Numerics wanted,
                                                 const SelectOptions& options) {
  std::vector<const Algorithm*> fitting;
  std::string names;
  for (const Algorithm& algorithm : catalogue()) {
    const bool forced = algorithm.name == options.algorithm && algorithm.supports(request);
    if (forced) return std::vector<const Algorithm*>{&algorithm};
    if (algorithm.supports(request)) names += (names.empty() ? "" : ", ") + std::string(algorithm.name);
    if (in_class(algorithm, request, wanted)) fitting.push_back(&algorithm);
  }
  const std::string what = std::string(name(request.collective)) + " of " + std::to_string(request.ranks) + " ranks";
  if (!options.algorithm.empty())
    return fail(Code::invalid_argument, "the algorithm '" + options.algorithm + "' that was asked for " +
                                            (find_algorithm(options.algorithm) ? "cannot do " : "is unknown; for ") +
                                            what + ". Choose one of: " + names);
  if (fitting.empty()) return fail(Code::unsupported, "no algorithm does " + what);
  return fitting;
}

/// Predicts the time of one algorithm's plan for a size of slices.
using TimeOf = std::function<Result<Estimate>(const ClockSize& size, double give_up_us)>;
/// Returns the TimeOf an algorithm for a request.
using Predictor = std::function<TimeOf(const Algorithm& algorithm, const PlanRequest& request)>;

Predictor by_clock(const ClockModel& model) {
  return [&model](const Algorithm& algorithm, const PlanRequest& request) -> TimeOf {
    return [&model, plan = build_all(algorithm, request)](const ClockSize& size, double) -> Result<Estimate> {
      STRAIT_ASSIGN(const ClockResult time, simulate(plan, size, model, Timeline::none));
      return Estimate{time.total_us, time.slices, time.binding, false};
    };
  };
}

Predictor by_estimate(const LevelModel& machine) {
  return [&machine](const Algorithm& algorithm, const PlanRequest& request) -> TimeOf {
    return [estimator = std::make_shared<Estimator>(algorithm, request, machine)](
               const ClockSize& size, double give_up_us) { return estimator->time(size, give_up_us); };
  };
}

/// Returns the slice sizes to try: the one that was asked for, or those that a slot can hold, largest first.
std::vector<std::size_t> slices_to_try(const SelectOptions& options) {
  if (options.slice_bytes > 0) return {options.slice_bytes};
  std::vector<std::size_t> sizes{slice_sizes_bytes.front()};
  for (const std::size_t bytes : slice_sizes_bytes)
    if (bytes > sizes.front() && bytes <= options.max_slice_bytes) sizes.insert(sizes.begin(), bytes);
  return sizes;
}

/// Returns the slice size with the shortest time; of equals the smaller one. Stops after the largest slices if these
/// take far longer than the fastest algorithm so far.
Result<Alternative> fastest_slices(const Algorithm& algorithm, const TimeOf& time_of, ClockSize size,
                                   const SelectOptions& options, double give_up_us) {
  constexpr double far_behind = 1.5;
  // In a long pipeline, the time to fill it grows with the slice size, and the total cost of steps shrinks. So with
  // smaller slices times first fall and then rise, and no further size is tried after the first that is slower.
  constexpr std::uint32_t long_pipeline = 16;
  bool is_long = false;
  Alternative best{.algorithm = std::string(algorithm.name)};
  const std::vector<std::size_t> sizes = slices_to_try(options);
  for (const std::size_t bytes : sizes) {
    size.slice_bytes = bytes;
    const bool first = bytes == sizes.front();
    STRAIT_ASSIGN(const Estimate time, time_of(size, first ? give_up_us : std::min(give_up_us, best.predicted_us)));
    if (first || (time.total_us <= best.predicted_us && !time.at_least)) {
      best.slice_bytes = bytes;
      best.predicted_us = time.total_us;
      best.binding = time.binding;
      best.at_least = time.at_least;
    }
    if (first && time.slices <= 1 && sizes.size() > 1 && size.count * size.element_bytes <= sizes.back()) {
      best.slice_bytes = sizes.back();  // all sizes give the same plan
      break;
    }
    if (first && time.total_us > far_behind * give_up_us) break;
    if (is_long && time.total_us > best.predicted_us) break;
    is_long = is_long || time.slices >= long_pipeline;
  }
  return best;
}

/// The accuracy of the clock. Of plans within this factor of the fastest, the one with the fewest lanes, then the
/// fewest steps, is chosen, because the least can go differently than predicted.
constexpr double equally_fast = 1.03;

/// Returns the numbers of lanes and steps of the last rank.
std::pair<std::size_t, std::size_t> parts_of(const std::string& algorithm, const PlanRequest& request) {
  const RankPlan plan = find_algorithm(algorithm)->build(request, request.ranks - 1);
  return {plan.lanes.size(), plan.steps()};
}

std::string explain(const Choice& choice, const PlanRequest& request, Numerics wanted, bool forced) {
  std::string why = choice.algorithm + ", predicted " + time_text(choice.predicted_us) + " in slices of " +
                    std::to_string(choice.slice_bytes >> 10) + " KiB, bound by " + choice.alternatives.front().binding;
  if (forced) return why + "; it was asked for";
  if (choice.alternatives.size() > 1) {
    const Alternative& next = choice.alternatives[1];
    why += "; next is " + next.algorithm + " with " + (next.at_least ? "at least " : "") + time_text(next.predicted_us);
    if (next.predicted_us < choice.predicted_us) why += why_simpler(request, choice.algorithm, next.algorithm);
  }
  return why + (wanted == Numerics::rank_order ? "; of those that add in rank order and round once" : "");
}

}  // namespace

std::string why_simpler(const PlanRequest& request, const std::string& chosen, const std::string& other) {
  const auto few = parts_of(chosen, request), many = parts_of(other, request);
  const bool by_lanes = few.first < many.first;
  char text[128];
  std::snprintf(text, sizeof text, ": both within %.0f%%, which the clock cannot tell apart, and ",
                100 * (equally_fast - 1));
  return text + chosen + " has fewer " + (by_lanes ? "lanes" : "steps") + " (" +
         std::to_string(by_lanes ? few.first : few.second) + ", not " +
         std::to_string(by_lanes ? many.first : many.second) + ")";
}

Numerics numerics_class(const PlanRequest& request, DataType type, ReduceOp op) {
  if (!is_reduction(request.collective) || is_order_free(type, op)) return Numerics::rounded;
  for (const Algorithm& algorithm : catalogue())
    if (in_class(algorithm, request, Numerics::rank_order)) return Numerics::rank_order;
  return Numerics::rounded;
}

namespace {

/// An algorithm with a lower bound of its time. Candidates are sorted by it, so that those that cannot win need not be
/// walked.
struct Candidate {
  const Algorithm* algorithm = nullptr;
  Alternative least;
};
Result<std::vector<Candidate>> by_least_time(const std::vector<const Algorithm*>& algorithms,
                                             const Predictor& predictor, const PlanRequest& request, ClockSize size,
                                             const SelectOptions& options) {
  std::vector<Candidate> candidates;
  size.slice_bytes = options.slice_bytes > 0 ? options.slice_bytes : options.max_slice_bytes;
  for (const Algorithm* algorithm : algorithms) {
    STRAIT_ASSIGN(const Estimate least, predictor(*algorithm, request)(size, 0));
    candidates.push_back({algorithm,
                          {.algorithm = std::string(algorithm->name),
                           .slice_bytes = size.slice_bytes,
                           .predicted_us = least.total_us,
                           .binding = least.binding,
                           .at_least = true}});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.least.predicted_us < b.least.predicted_us; });
  return candidates;
}

/// Moves the simplest of the fastest plans to the front. `alternatives` are sorted by time.
void put_simplest_first(std::vector<Alternative>& alternatives, const PlanRequest& request) {
  auto end = alternatives.begin();
  while (end != alternatives.end() && !end->at_least &&
         end->predicted_us <= equally_fast * alternatives.front().predicted_us)
    ++end;
  if (end - alternatives.begin() < 2) return;
  auto simplest = alternatives.begin();
  std::pair<std::size_t, std::size_t> least{SIZE_MAX, SIZE_MAX};  // lanes, steps
  for (auto alternative = alternatives.begin(); alternative != end; ++alternative) {
    const auto parts = parts_of(alternative->algorithm, request);
    if (parts < least) least = parts, simplest = alternative;
  }
  std::rotate(alternatives.begin(), simplest, simplest + 1);
}

Result<Choice> choose_by(const Predictor& predictor, bool in_order, PlanRequest request, DataType type, ReduceOp op,
                         std::size_t count, const SelectOptions& options) {
  const Numerics wanted = numerics_class(request, type, op);
  STRAIT_ASSIGN(const auto algorithms, candidates(request, wanted, options));
  if (options.lanes > 0) request.lanes = options.lanes;
  Choice choice;
  choice.lanes = request.lanes;
  if (request.collective == Collective::send_recv) {  // a rank knows only its own posts
    choice.algorithm = algorithms.front()->name;
    choice.slice_bytes = options.slice_bytes > 0 ? options.slice_bytes : slice_sizes_bytes[2];
    choice.why = choice.algorithm + ", the only algorithm for groups of sends and receives";
    return choice;
  }
  double least_us = std::numeric_limits<double>::infinity();
  Status left_out;
  const ClockSize size{.count = count, .element_bytes = size_bytes(type)};
  std::vector<Candidate> ordered;
  for (const Algorithm* algorithm : algorithms) ordered.push_back({algorithm, {}});
  if (!in_order) {
    STRAIT_ASSIGN(ordered, by_least_time(algorithms, predictor, request, size, options));
  }
  for (const auto& [algorithm, least] : ordered) {
    if (least.predicted_us > least_us) {
      choice.alternatives.push_back(least);
      continue;
    }
    auto alternative = fastest_slices(*algorithm, predictor(*algorithm, request), size, options, least_us);
    if (!alternative && alternative.error().code == Code::unsupported) {
      left_out = tl::unexpected(alternative.error());
      continue;
    }
    if (!alternative) return tl::unexpected(alternative.error());
    least_us = std::min(least_us, alternative->predicted_us);
    choice.alternatives.push_back(std::move(*alternative));
  }
  if (choice.alternatives.empty()) return tl::unexpected(left_out.error());
  std::stable_sort(choice.alternatives.begin(), choice.alternatives.end(),
                   [](const Alternative& a, const Alternative& b) { return a.predicted_us < b.predicted_us; });
  put_simplest_first(choice.alternatives, request);
  const Alternative& best = choice.alternatives.front();
  choice.algorithm = best.algorithm;
  choice.slice_bytes = best.slice_bytes;
  choice.predicted_us = best.predicted_us;
  choice.why = explain(choice, request, wanted, !options.algorithm.empty());
  return choice;
}

}  // namespace

Result<Choice> choose(const PlanRequest& request, DataType type, ReduceOp op, std::size_t count,
                      const ClockModel& model, const SelectOptions& options) {
  return choose_by(by_clock(model), true, request, type, op, count, options);
}

Result<Choice> choose(const PlanRequest& request, DataType type, ReduceOp op, std::size_t count,
                      const LevelModel& machine, const SelectOptions& options) {
  return choose_by(by_estimate(machine), false, request, type, op, count, options);
}

}  // namespace strait
