#include "select/select.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "plan/layout.hpp"

namespace strait {
namespace {

constexpr std::array<std::size_t, 5> slice_sizes_bytes{16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10};

bool in_class(const Algorithm& algorithm, const PlanRequest& request, Numerics wanted) {
  return algorithm.supports(request) && (wanted == Numerics::rounded || algorithm.numerics(request) == wanted);
}

std::string microseconds(double time_us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f us", time_us);
  return text;
}

/// The algorithms to compare: those of the class, or the forced one.
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

Result<Alternative> fastest_slices(const Algorithm& algorithm, const PlanRequest& request, std::size_t element_bytes,
                                   std::size_t count, const ClockModel& model, const SelectOptions& options) {
  const Plan plan = build_all(algorithm, request);
  Alternative best{.algorithm = std::string(algorithm.name), .slice_bytes = 0, .predicted_us = 0, .binding = {}};
  for (const std::size_t listed : slice_sizes_bytes) {
    if (listed > options.max_slice_bytes && best.slice_bytes != 0) break;
    const std::size_t slice_bytes = options.slice_bytes > 0 ? options.slice_bytes : listed;
    STRAIT_ASSIGN(const ClockResult time,
                  simulate(plan, {.count = count, .element_bytes = element_bytes, .slice_bytes = slice_bytes}, model));
    if (best.slice_bytes == 0 || time.total_us < best.predicted_us) {
      best.slice_bytes = slice_bytes;
      best.predicted_us = time.total_us;
      best.binding = time.binding;
    }
    if (options.slice_bytes > 0 || time.slices <= 1) break;  // larger slices are the same
  }
  return best;
}

std::string explain(const Choice& choice, Numerics wanted, bool forced) {
  std::string why = choice.algorithm + ", predicted " + microseconds(choice.predicted_us) + " in slices of " +
                    std::to_string(choice.slice_bytes >> 10) + " KiB, bound by " + choice.alternatives.front().binding;
  if (forced) return why + "; it was asked for";
  if (choice.alternatives.size() > 1)
    why +=
        "; next is " + choice.alternatives[1].algorithm + " with " + microseconds(choice.alternatives[1].predicted_us);
  return why + (wanted == Numerics::rank_order ? "; of those that add in rank order and round once" : "");
}

}  // namespace

Numerics numerics_class(const PlanRequest& request, DataType type, ReduceOp op) {
  if (!is_reduction(request.collective) || request.order_free || is_order_free(type, op)) return Numerics::rounded;
  for (const Algorithm& algorithm : catalogue())
    if (in_class(algorithm, request, Numerics::rank_order)) return Numerics::rank_order;
  return Numerics::rounded;
}

Result<Choice> choose(const PlanRequest& request, DataType type, ReduceOp op, std::size_t count,
                      const ClockModel& model, const SelectOptions& options) {
  const Numerics wanted = numerics_class(request, type, op);
  STRAIT_ASSIGN(const auto algorithms, candidates(request, wanted, options));
  Choice choice;
  choice.lanes = request.lanes;
  if (request.collective == Collective::send_recv) {  // one rank knows its own posts only, and there is one algorithm
    choice.algorithm = algorithms.front()->name;
    choice.slice_bytes = options.slice_bytes > 0 ? options.slice_bytes : slice_sizes_bytes[2];
    choice.why = choice.algorithm + ", the only algorithm for groups of sends and receives";
    return choice;
  }
  for (const Algorithm* algorithm : algorithms) {
    STRAIT_ASSIGN(Alternative alternative,
                  fastest_slices(*algorithm, request, size_bytes(type), count, model, options));
    choice.alternatives.push_back(std::move(alternative));
  }
  std::stable_sort(choice.alternatives.begin(), choice.alternatives.end(),
                   [](const Alternative& a, const Alternative& b) { return a.predicted_us < b.predicted_us; });
  const Alternative& best = choice.alternatives.front();
  choice.algorithm = best.algorithm;
  choice.slice_bytes = best.slice_bytes;
  choice.predicted_us = best.predicted_us;
  choice.why = explain(choice, wanted, !options.algorithm.empty());
  return choice;
}

}  // namespace strait
