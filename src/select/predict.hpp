#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "select/machine_model.hpp"
#include "select/select.hpp"

/// What would be chosen on a machine, and how long each alternative would take there.
namespace strait {

struct Operation {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;  ///< as the call counts
  std::uint32_t root = 0;
  WireFormat wire = WireFormat::off;  ///< asked for; predict() itself knows exact elements only
};

/// A part of a call that GPU ranks carry out in several: a call that groups of ranks make among themselves, or kernels
/// that trade with nobody. Of what ranks do at the same time, what takes longest.
struct PredictedStep {
  std::string what;       ///< "reduce of float32 within islands", "encode"
  std::size_t bytes = 0;  ///< of the larger buffer of the call; of kernels, what they read and write on a GPU
  std::string algorithm;  ///< of the fastest plan; "": none
  std::string executor;
  double time_us = 0;
};

struct PredictedPlan {
  std::string algorithm;
  std::string executor;     ///< who moves and adds: "CPU", "GPU", "GPU, CPU sums"
  bool in_class = true;     ///< has the numerics that this reduction must have; the others are never chosen
  bool runs = true;         ///< as far as is known: false of what GPU ranks do in another way
  std::uint32_t lanes = 1;  ///< of the request that the plan was built for
  std::size_t slice_bytes = 0;
  ClockResult time;
  bool estimated = false;  ///< as the library does of many host ranks: the time has no resources and no timeline
  bool at_least = false;   ///< an estimate that was enough to leave it
  std::vector<PredictedStep> steps{};  ///< in order, of a call that consists of some; else none
  Plan plan{};                         ///< of those steps, one after the other; else empty, for build_plan() makes it
};

struct Prediction {
  std::string why;                   ///< of the choice, in one line
  std::vector<PredictedPlan> plans;  ///< first the choice, then those of its class, then the others; each fastest first
  const PredictedPlan& choice() const { return plans.front(); }
};

/// Told which plan is simulated next: of hundreds of ranks each takes seconds.
using Progress = std::function<void(const std::string& algorithm)>;
/// Beyond, smaller slices of GPUs' plans are tried only until they are slower, and none whose steps take the clock
/// long.
inline constexpr std::uint32_t most_ranks_with_all_slices = 64;
inline constexpr std::size_t most_steps_of_small_slices = 1'000'000;

/// Every plan that does this operation there; of those outside the class only if `others`. With an algorithm in
/// `options` that one alone, whatever its class. An error: a root that is no rank, a collective that depends on what
/// each rank posts (send-recv, all-to-all-v), or an algorithm that does not do it.
Result<Prediction> predict(const Machine& machine, const Operation& operation, const SelectOptions& options = {},
                           bool others = false, const Progress& progress = {});

/// An error as predict() gives it for the operation alone.
Status check(const Machine& machine, const Operation& operation);
/// Of the choice, the first of the plans, in one line.
std::string why_chosen(const Machine& machine, const Operation& operation, const std::vector<PredictedPlan>& plans,
                       bool forced);

/// The request of a plan for this operation on this machine.
PlanRequest request_for(const Machine& machine, const Operation& operation);
/// Who moves and adds, of GPUs beside whose memory CPUs add.
inline constexpr std::string_view gpu_executor = "GPU";
inline constexpr std::string_view cpu_sums_executor = "GPU, CPU sums";
/// All ranks' parts of a predicted plan, those of CPUs that add included.
Result<Plan> build_plan(const Machine& machine, const Operation& operation, const PredictedPlan& predicted);

/// "22.9 us", "113.8 ms", "1.42 s".
std::string time_text(double time_us);

}  // namespace strait
