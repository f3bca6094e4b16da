#pragma once

#include "select/predict.hpp"

/// What ranks would run on a machine, and for how long: the plan that predict() finds fastest, but for GPU ranks of one
/// host only what they do (docs/gpus.md).
namespace strait::sim {

/// As predict(). Of GPU ranks of one host the choice is the fastest of the plans that kernels carry out; calls that
/// islands carry or that are encoded consist of steps, each with the fastest of those; and CPU threads add up what they
/// add up on GPU ranks. First the choice, then the same by GPUs or by CPUs instead, then plans that GPU ranks do not
/// run. An error, too: a wire format of a call that cannot have one, or of ranks that are not GPUs of one host.
Result<Prediction> predict_ranks(const Machine& machine, const Operation& operation, const SelectOptions& options = {},
                                 bool others = false, const Progress& progress = {});

/// Whether it is one of the plans that kernels of GPU ranks carry out.
bool is_carried_out(const PredictedPlan& plan);

/// From which all-reduces on CPU threads add up, once these rates are measured; 0: none. Where there are islands, of
/// what crosses.
std::size_t cpu_reduce_border_bytes_of(const Machine& machine);

}  // namespace strait::sim
