#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "predicted_on.hpp"
#include "sim/machine_source.hpp"

/// Estimates data-parallel training on a machine: every rank computes its own samples, and gradients are summed over
/// all ranks during the backward pass. docs/simulation.md gives the formula.
namespace strait::sim {

struct TrainingOptions {
  double parameters = 0;
  double bytes_per_parameter = 4;
  double compute_ms = 0;            ///< time of a step on one GPU: forward, backward and optimizer
  double backward_share = 2.0 / 3;  ///< share of compute_ms during which gradients become ready, at an even pace
  double samples = 1;               ///< samples of one rank in a step
  /// Number of buckets, of equal size. A bucket is summed once it is ready and the previous one has been summed.
  std::uint32_t buckets = 10;
};

struct TrainingPoint {
  std::uint32_t ranks = 1;
  double step_ms = 0;
  double sums_ms = 0;     ///< time to sum all buckets, one after the other
  double exposed_ms = 0;  ///< communication time that computation does not hide
  double samples_per_second = 0;
  double efficiency = 1;  ///< samples per second over `ranks` times those of a single rank
  std::string plan;       ///< plan for the all-reduce of a bucket
};

struct TrainingCurve {
  std::string name;
  std::vector<TrainingPoint> points;  ///< the first point is a single rank
};

/// Returns an error that names the option whose value makes no sense.
Status validate(const TrainingOptions& options);

/// Returns the duration of a step in which the sum of each bucket takes `bucket_ms`.
double step_ms(const TrainingOptions& options, double bucket_ms);

/// Returns the size of a bucket, rounded up to whole elements of `type`.
std::size_t bucket_bytes(const TrainingOptions& options, DataType type);

/// Estimates training on each number of ranks, with Strait's choice and with each algorithm in `against`.
Result<std::vector<TrainingCurve>> train(const TrainingOptions& options, const MachineOptions& machine, DataType type,
                                         const std::vector<std::uint32_t>& ranks,
                                         const std::vector<std::string>& against);

/// Describes the options: "3.04e+08 parameters of 4 bytes, ...".
std::string description(const TrainingOptions& options);
std::string to_text(const TrainingOptions& options, const tools::PredictedOn& on,
                    const std::vector<TrainingCurve>& curves);
std::string to_json(const TrainingOptions& options, const tools::PredictedOn& on,
                    const std::vector<TrainingCurve>& curves);
/// Draws samples per second and efficiency over ranks.
std::string plot_svg(const TrainingOptions& options, const tools::PredictedOn& on,
                     const std::vector<TrainingCurve>& curves);

}  // namespace strait::sim
