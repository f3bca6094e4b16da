#include "sim/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "base/time_text.hpp"
#include "perf/provenance.hpp"
#include "sim/gpu_ranks.hpp"
#include "sim/sweep.hpp"

namespace strait::sim {
namespace {

using Json = nlohmann::ordered_json;
constexpr double most_gradient_bytes = 1e15;

Result<TrainingPoint> point(const TrainingOptions& options, const Machine& machine, DataType type,
                            const std::string& algorithm) {
  const OperationOptions sum{.collective = Collective::all_reduce, .type = type, .op = ReduceOp::sum, .root = 0};
  const std::uint32_t ranks = machine.request.ranks;
  STRAIT_ASSIGN(const Operation operation, operation_of(sum, bucket_bytes(options, type), ranks));
  STRAIT_ASSIGN(const Prediction prediction, predict_ranks(machine, operation, {.algorithm = algorithm}));
  const double bucket_ms = prediction.choice().time.total_us * 1e-3;
  TrainingPoint point;
  point.ranks = ranks;
  point.sums_ms = options.buckets * bucket_ms;
  point.step_ms = step_ms(options, bucket_ms);
  point.exposed_ms = point.step_ms - options.compute_ms;
  point.efficiency = options.compute_ms / point.step_ms;
  point.samples_per_second = ranks * options.samples / point.step_ms * 1e3;
  point.plan = prediction.choice().algorithm + " (" + prediction.choice().executor + ")";
  return point;
}

TrainingPoint alone(const TrainingOptions& options) {
  return {1, options.compute_ms, 0, 0, options.samples / options.compute_ms * 1e3, 1, "no communication"};
}

}  // namespace

Status validate(const TrainingOptions& options) {
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  if (!positive(options.parameters) || !positive(options.compute_ms))
    return fail(
        Code::invalid_argument,
        "--train needs --parameters, those of the model, and --compute-ms, of a step on one rank, both more than "
        "0. Write --parameters 350M --compute-ms 600");
  if (!positive(options.bytes_per_parameter))
    return fail(Code::invalid_argument, "--bytes-per-parameter must be more than 0");
  if (!positive(options.samples)) return fail(Code::invalid_argument, "--samples must be more than 0");
  if (!(options.backward_share >= 0 && options.backward_share <= 1))
    return fail(Code::invalid_argument, "--backward-share is a part of the step: from 0 to 1");
  if (options.buckets == 0) return fail(Code::invalid_argument, "--buckets must be at least 1");
  if (options.parameters * options.bytes_per_parameter > most_gradient_bytes)
    return fail(Code::invalid_argument, "--parameters times --bytes-per-parameter is more than 1000 terabytes");
  return {};
}

double step_ms(const TrainingOptions& options, double bucket_ms) {
  const double backward_ms = options.backward_share * options.compute_ms;
  const double begin_ms = options.compute_ms - backward_ms;
  double end_ms = 0;
  for (std::uint32_t bucket = 1; bucket <= options.buckets; ++bucket)
    end_ms = std::max(end_ms, begin_ms + backward_ms * bucket / options.buckets) + bucket_ms;
  return end_ms;
}

std::size_t bucket_bytes(const TrainingOptions& options, DataType type) {
  const double bytes = options.parameters * options.bytes_per_parameter / options.buckets;
  return static_cast<std::size_t>(std::ceil(bytes / static_cast<double>(size_bytes(type)))) * size_bytes(type);
}

Result<std::vector<TrainingCurve>> train(const TrainingOptions& options, const MachineOptions& machine, DataType type,
                                         const std::vector<std::uint32_t>& ranks,
                                         const std::vector<std::string>& against) {
  STRAIT_TRY(validate(options));
  std::vector<TrainingCurve> curves;
  std::vector<std::string> algorithms{""};
  algorithms.insert(algorithms.end(), against.begin(), against.end());
  for (const std::string& algorithm : algorithms) {
    TrainingCurve curve{"Strait's choice", {alone(options)}};
    for (const std::uint32_t count : ranks) {
      MachineOptions some = machine;
      some.ranks = count;
      STRAIT_ASSIGN(const Machine placed, machine_of(some));
      STRAIT_ASSIGN(TrainingPoint one, point(options, placed, type, algorithm));
      if (!algorithm.empty()) curve.name = label_of(algorithm, placed);
      curve.points.push_back(std::move(one));
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

std::string description(const TrainingOptions& options) {
  return fmt::format(
      "{:g} parameters of {:g} bytes, {:g} ms of computation a step, {} buckets overlapped with the backward pass "
      "({:.0f}% of it)",
      options.parameters, options.bytes_per_parameter, options.compute_ms, options.buckets,
      100 * options.backward_share);
}

std::string to_text(const TrainingOptions& options, const tools::PredictedOn& on,
                    const std::vector<TrainingCurve>& curves) {
  std::string text = "# PREDICTION by Strait's clock: nothing here was measured\n";
  text += fmt::format("# machine: {}\n# {}\n", on.machine, description(options));
  if (!on.caveat.empty()) text += fmt::format("# {}\n", on.caveat);
  for (const TrainingCurve& curve : curves) {
    text += fmt::format("#\n# {}\n# {:>8} {:>12} {:>12} {:>12} {:>12} {:>11}  {}\n", curve.name, "ranks", "step",
                        "sums", "exposed", "samples/s", "efficiency", "plan of a bucket");
    for (const TrainingPoint& p : curve.points)
      text += fmt::format("{:>10} {:>12} {:>12} {:>12} {:>12.2f} {:>10.1f}%  {}\n", p.ranks, time_text(p.step_ms * 1e3),
                          time_text(p.sums_ms * 1e3), time_text(p.exposed_ms * 1e3), p.samples_per_second,
                          100 * p.efficiency, p.plan);
  }
  return text;
}

std::string to_json(const TrainingOptions& options, const tools::PredictedOn& on,
                    const std::vector<TrainingCurve>& curves) {
  Json json = {{"program", "strait sim --train"}, {"prediction", true}, {"provenance", perf::provenance()}};
  json["machine"] = on.machine;
  json["caveat"] = on.caveat;
  json["parameters"] = options.parameters;
  json["bytes_per_parameter"] = options.bytes_per_parameter;
  json["compute_ms"] = options.compute_ms;
  json["backward_share"] = options.backward_share;
  json["samples"] = options.samples;
  json["buckets"] = options.buckets;
  json["curves"] = Json::array();
  for (const TrainingCurve& curve : curves) {
    Json points = Json::array();
    for (const TrainingPoint& p : curve.points)
      points.push_back({{"ranks", p.ranks},
                        {"step_ms", p.step_ms},
                        {"sums_ms", p.sums_ms},
                        {"exposed_ms", p.exposed_ms},
                        {"samples_per_second", p.samples_per_second},
                        {"efficiency", p.efficiency},
                        {"plan", p.plan}});
    json["curves"].push_back({{"name", curve.name}, {"points", points}});
  }
  return json_text(json);
}

}  // namespace strait::sim
