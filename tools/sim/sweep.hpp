#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/explain.hpp"
#include "sim/machine_source.hpp"

/// `strait sim`: predictions over sizes and over ranks.
namespace strait::sim {

struct SweepOptions {
  MachineOptions machine;  ///< `ranks` is not used
  OperationOptions operation;
  std::vector<std::size_t> sizes_bytes;  ///< ascending
  std::vector<std::uint32_t> ranks;      ///< ascending; empty: as default_ranks() says
  std::string algorithm;                 ///< instead of the choice
  std::vector<std::string> against;      ///< algorithms to compare with
  Progress progress{};                   ///< told only of many ranks
};

struct Point {
  std::uint32_t ranks = 0;
  std::size_t bytes = 0;
  PredictedPlan plan;  ///< without its timeline
  Bandwidths rates;
  std::vector<LevelUse> levels;
};

struct Curve {
  std::string name;  ///< "Strait's choice", "ring"
  std::vector<Point> points;
};

struct Sweep {
  std::string machine;
  OperationOptions operation;
  std::vector<Curve> by_size;   ///< on the most ranks
  std::vector<Curve> by_ranks;  ///< at the largest size
};

/// What a reader should know of an algorithm that others are compared with: its name, and that NCCL does it so.
std::string label_of(const std::string& algorithm, const Machine& machine);

/// "2..10", "2,4,8", "16": ascending, at least 2 each.
Result<std::vector<std::uint32_t>> parse_ranks(std::string_view text);
/// 2, 3, ... up to 16; beyond that powers of two, and never more than 64 by themselves (larger ones take long).
std::vector<std::uint32_t> default_ranks(std::uint32_t most);

Result<Sweep> sweep(const SweepOptions& options);

std::string to_text(const Sweep& sweep);
std::string to_json(const Sweep& sweep);
/// Bus bandwidth against size and against ranks, and how busy each level of the machine is.
std::string plot_svg(const Sweep& sweep);
std::string plot_html(const Sweep& sweep);

}  // namespace strait::sim
