#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "perf/floors.hpp"

namespace strait::perf {

/// One size, out of place or in place.
struct Measurement {
  double time_us = 0;      ///< mean of the iterations, over ranks as --average says
  double cpu_time_us = 0;  ///< CPU time of the calling thread, likewise
  double algorithm_gbps = 0;
  double bus_gbps = 0;
  double p50_us = 0;  ///< median of a rank's single iterations, over ranks likewise; 0 beside a baseline: not measured
  double p99_us = 0;
  std::optional<std::int64_t> wrong;  ///< elements; nothing: not checked
  std::int64_t calls = 0;             ///< that the mean is of; 0: none was made

  /// Bus bandwidth had every iteration taken this long.
  double bus_gbps_at(double iteration_us) const { return iteration_us > 0 ? bus_gbps * time_us / iteration_us : 0; }
};

/// What a line of the table measures, all sizes of one type, operation and root.
struct Subject {
  DataType type = DataType::float32;
  std::optional<ReduceOp> op;
  int root = -1;

  friend bool operator==(const Subject&, const Subject&) = default;
};

struct Row {
  std::size_t bytes = 0;  ///< the larger of a rank's two buffers
  std::size_t count = 0;
  Subject subject;
  Measurement out_of_place;
  std::optional<Measurement> in_place;  ///< nothing where the collective has no such form
  std::optional<Measurement> baseline_out_of_place{};
  std::optional<Measurement> baseline_in_place{};
  std::optional<Floor> floor{};
};

/// How many times faster than the baseline.
double ratio(const Measurement& ours, const Measurement& baseline);

/// Nearest-rank percentile; the samples come back sorted.
double percentile(std::span<double> samples, double percent);

/// The mean bus bandwidth over all measurements, all wrong elements, the mean ratio: what the footer says.
struct Summary {
  double mean_bus_gbps = 0;
  std::int64_t wrong = 0;              ///< the baseline's not among them
  std::optional<double> mean_ratio{};  ///< geometric, to the baseline
};
Summary summarise(std::span<const Row> rows);

/// The rank, process and place that the header lists.
struct RankInfo {
  int rank = 0;
  int pid = 0;
  std::string host;
  int device = -1;  ///< -1: a host rank
  std::string bus_id;
  std::string gpu;  ///< its name
};

/// The library that is measured in turn with Strait.
struct BaselineInfo {
  std::string path;
  int version = 0;  ///< as NCCL numbers them: 22809 stands for 2.28.9

  std::string name() const;  ///< "NCCL 2.28.9"
};

/// What carries the data, and what was wrong with faster ways ("" where nothing was).
struct TransportInfo {
  std::string name;
  std::string why;
  WireFormat wire = WireFormat::off;  ///< of the calls that can have one
};

}  // namespace strait::perf
