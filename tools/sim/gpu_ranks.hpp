#pragma once

#include <string_view>

#include "sim/predict.hpp"

/// Predicts what ranks would run on a machine, and for how long. This is the plan that predict() finds fastest, except
/// that for GPU ranks of one host only what these ranks really do is considered (docs/gpus.md).
namespace strait::sim {

/// Returns what readers of a prediction for the ranks of a machine must know; "" if nothing.
std::string_view caveat_of(const Machine& machine);

/// Like predict(), with these differences for GPU ranks of one host:
/// - The choice is the fastest of the plans that kernels carry out.
/// - Calls that islands carry, and calls in a wire format, consist of steps. Each step takes the fastest of those
///   plans.
/// - CPU threads add up the same calls as on GPU ranks.
/// The plans are in this order: the choice; with `others`, the same steps added up by GPUs instead of CPU threads or
/// vice versa; plans that GPU ranks do not run. Also returns an error for a wire format if the call cannot have one, if
/// an algorithm is named, or if the ranks are not GPUs of one host.
Result<Prediction> predict_ranks(const Machine& machine, const Operation& operation, const SelectOptions& options = {},
                                 bool others = false, const Progress& progress = {});

/// Returns whether kernels of GPU ranks can carry out the plan.
bool is_carried_out(const PredictedPlan& plan);

/// Returns the size from which on CPU threads add up all-reduces of GPU ranks; 0: never. This holds once the rates of
/// the machine have been measured by calibration. If there are islands, the size is that of the data that crosses
/// between them.
std::size_t cpu_reduce_border_bytes_of(const Machine& machine);

}  // namespace strait::sim
