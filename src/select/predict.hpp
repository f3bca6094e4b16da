#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
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
};

struct PredictedPlan {
  std::string algorithm;
  std::string executor;     ///< who moves and adds: "CPU", "GPU", "GPU, CPU sums"
  bool in_class = true;     ///< has the numerics that this reduction must have; the others are never chosen
  std::uint32_t lanes = 1;  ///< of the request that the plan was built for
  std::size_t slice_bytes = 0;
  ClockResult time;
};

struct Prediction {
  std::string why;                   ///< of the choice, in one line
  std::vector<PredictedPlan> plans;  ///< first the choice, then those of its class, then the others; each fastest first
  const PredictedPlan& choice() const { return plans.front(); }
};

/// Every plan that does this operation there; of those outside the class only if `others`. With an algorithm in
/// `options` that one alone, whatever its class. An error: a root that is no rank, a collective that depends on what
/// each rank posts (send-recv, all-to-all-v), or an algorithm that does not do it.
Result<Prediction> predict(const Machine& machine, const Operation& operation, const SelectOptions& options = {},
                           bool others = false);

/// The request of a plan for this operation on this machine.
PlanRequest request_for(const Machine& machine, const Operation& operation);
/// All ranks' parts of a predicted plan, those of CPUs that add included.
Result<Plan> build_plan(const Machine& machine, const Operation& operation, const PredictedPlan& predicted);

/// "22.9 us", "113.8 ms", "1.42 s".
std::string time_text(double time_us);

}  // namespace strait
