#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "select/select.hpp"
#include "sim/machine_model.hpp"

/// Predicts which plan would be chosen on a machine, and how long each alternative would take.
namespace strait {

struct Operation {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;  ///< in the call's own unit, e.g. elements of a block for an all-gather
  std::uint32_t root = 0;
  WireFormat wire = WireFormat::off;  ///< requested by the user; predict() itself handles exact elements only
};

/// One step of a call that GPU ranks carry out in several: calls within groups of ranks, or kernels that exchange
/// nothing. If ranks do different things at the same time, the one that takes longest.
struct PredictedStep {
  std::string what;  ///< "reduce of float32 within islands", "encode"
  /// For a call, those of its larger buffer; for kernels, what they read and write in a GPU's memory.
  std::size_t bytes = 0;
  std::string algorithm;  ///< that of the fastest plan; "": none
  std::string executor;
  double time_us = 0;
};

struct PredictedPlan {
  std::string algorithm;
  std::string executor;  ///< what moves and adds the bytes: "CPU", "GPU", "GPU, CPU sums"
  /// Whether the plan has the numerics that this reduction must have; others are never chosen.
  bool in_class = true;
  /// Whether ranks run this plan, as far as is known; false if GPU ranks carry out the call in another way.
  bool runs = true;
  std::uint32_t lanes = 1;  ///< in the request for which the plan was built
  std::size_t slice_bytes = 0;
  ClockResult time;
  /// The time is an estimate, as the library makes for many host ranks, without use of resources and timeline.
  bool estimated = false;
  bool at_least = false;               ///< the time is a lower bound, enough to rule the plan out
  std::vector<PredictedStep> steps{};  ///< in order; empty if the call is a single plan
  /// The plans of the steps, one after the other. Empty if there are no steps: build_plan() then builds the plan.
  Plan plan{};
};

struct Prediction {
  std::string why;  ///< reason for the choice, in one line
  /// First the choice, then plans of its class, then the others; each group fastest first.
  std::vector<PredictedPlan> plans;
  const PredictedPlan& choice() const { return plans.front(); }
};

/// Called before each algorithm is simulated: with hundreds of ranks each takes seconds.
using Progress = std::function<void(const std::string& algorithm)>;
/// Limits for GPU plans. With more ranks than this, smaller slices are tried only until they are slower, and only if
/// the clock simulates no more steps than the second limit.
inline constexpr std::uint32_t most_ranks_with_all_slices = 64;
inline constexpr std::size_t most_steps_of_small_slices = 1'000'000;

/// Predicts every plan that does this operation on the machine. Plans outside the numerics class are included only if
/// `others`. An algorithm in `options` is predicted alone, whatever its class. Returns an error for a root that is no
/// rank, a collective that depends on what each rank posts (send-recv, all-to-all-v), or an algorithm that cannot do
/// the operation.
Result<Prediction> predict(const Machine& machine, const Operation& operation, const SelectOptions& options = {},
                           bool others = false, const Progress& progress = {});

/// Returns the error that predict() would return because of the operation alone.
Status check(const Machine& machine, const Operation& operation);
/// Explains in one line why the first of the plans is the choice.
std::string why_chosen(const Machine& machine, const Operation& operation, const std::vector<PredictedPlan>& plans,
                       bool forced);

/// Returns the request for plans of this operation on this machine.
PlanRequest request_for(const Machine& machine, const Operation& operation);
/// What moves and adds the bytes: GPUs alone, or GPUs with CPUs that add beside host memory.
inline constexpr std::string_view gpu_executor = "GPU";
inline constexpr std::string_view cpu_sums_executor = "GPU, CPU sums";
/// Builds the parts of all ranks of a predicted plan, including those of CPUs that add.
Result<Plan> build_plan(const Machine& machine, const Operation& operation, const PredictedPlan& predicted);

}  // namespace strait
