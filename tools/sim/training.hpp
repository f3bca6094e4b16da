#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/machine_source.hpp"

/// Data-parallel training on a machine, estimated: every rank computes its own samples, and gradients are summed over
/// all ranks while the backward pass goes on. docs/simulation.md gives the formula.
namespace strait::sim {

struct TrainingOptions {
  double parameters = 0;
  double bytes_per_parameter = 4;
  double compute_ms = 0;            ///< of a step on one GPU: forward, backward and optimizer
  double backward_share = 2.0 / 3;  ///< of it, during which gradients become ready, evenly
  double samples = 1;               ///< of a rank in a step
  std::uint32_t buckets = 10;       ///< of equal size; each is summed as soon as it is ready and the one before is done
};

struct TrainingPoint {
  std::uint32_t ranks = 1;
  double step_ms = 0;
  double sums_ms = 0;     ///< of all buckets, one after the other
  double exposed_ms = 0;  ///< beyond the computation
  double samples_per_second = 0;
  double efficiency = 1;  ///< samples a second, over ranks times those of one rank
  std::string plan;       ///< of a bucket
};

struct TrainingCurve {
  std::string name;
  std::vector<TrainingPoint> points;  ///< the first is one rank alone
};

/// An error names the number that makes no sense.
Status validate(const TrainingOptions& options);

/// The end of a step whose buckets take `bucket_ms` each to sum.
double step_ms(const TrainingOptions& options, double bucket_ms);

/// The bytes of a bucket: whole elements of `type`.
std::size_t bucket_bytes(const TrainingOptions& options, DataType type);

Result<std::vector<TrainingCurve>> train(const TrainingOptions& options, const MachineOptions& machine, DataType type,
                                         const std::vector<std::uint32_t>& ranks,
                                         const std::vector<std::string>& against);

/// "3.04e+08 parameters of 4 bytes, ...".
std::string description(const TrainingOptions& options);
std::string to_text(const TrainingOptions& options, const std::string& machine,
                    const std::vector<TrainingCurve>& curves);
std::string to_json(const TrainingOptions& options, const std::string& machine,
                    const std::vector<TrainingCurve>& curves);
/// Samples per second and efficiency over ranks.
std::string plot_svg(const TrainingOptions& options, const std::string& machine,
                     const std::vector<TrainingCurve>& curves);

}  // namespace strait::sim
