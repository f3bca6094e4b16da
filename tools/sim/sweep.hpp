#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "predicted_on.hpp"
#include "sim/explain.hpp"
#include "sim/machine_source.hpp"

/// `strait sim`: predictions over sizes and over ranks.
namespace strait::sim {

struct SweepOptions {
  MachineOptions machine;  ///< `ranks` is not used
  OperationOptions operation;
  std::vector<std::size_t> sizes_bytes;  ///< ascending
  std::vector<std::uint32_t> ranks;      ///< ascending; empty: default_ranks()
  std::string algorithm;                 ///< forced instead of the choice; empty: none
  std::vector<std::string> against;      ///< algorithms to compare with
  Progress progress{};                   ///< called only with more than most_ranks_in_silence ranks
};

struct Point {
  std::uint32_t ranks = 0;
  std::size_t bytes = 0;
  PredictedPlan plan;  ///< without its timeline
  Bandwidths rates;
  std::vector<LevelUse> levels;
};

struct Curve {
  std::string name;  ///< such as "Strait's choice" or "ring"
  std::vector<Point> points;
};

struct Sweep {
  tools::PredictedOn on;
  OperationOptions operation;
  std::vector<Curve> by_size;   ///< all sizes on the largest number of ranks
  std::vector<Curve> by_ranks;  ///< all numbers of ranks, at the largest size
};

/// Returns how a curve of this algorithm is labelled: its name and, for a ring through host memory, a note that NCCL
/// does the same.
std::string label_of(const std::string& algorithm, const Machine& machine);

/// Parses numbers of ranks such as "2..10", "2,4,8" or "16". They must be at least 2; the result is ascending.
Result<std::vector<std::uint32_t>> parse_ranks(std::string_view text);
/// Returns the numbers of ranks of a sweep up to `most`: 2, 3, 4, ... if `most` is at most 16; otherwise 2, 4, 8, ...
/// and `most` itself. They end at 64, because predictions for more ranks take long.
std::vector<std::uint32_t> default_ranks(std::uint32_t most);

Result<Sweep> sweep(const SweepOptions& options);

std::string to_text(const Sweep& sweep);
std::string to_json(const Sweep& sweep);
/// Draws bus bandwidth against size and against ranks, and how busy each level of the machine is.
std::string plot_svg(const Sweep& sweep);
std::string plot_html(const Sweep& sweep);

}  // namespace strait::sim
