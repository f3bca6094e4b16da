#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"
#include "sim/machine_source.hpp"

/// `strait explain`: what is chosen and why, for people and for programs.
namespace strait::sim {

/// What `strait perf` has found for the same operation on as many ranks.
struct Measured {
  double time_us = 0;
  double bus_gbps = 0;
  std::string where;  ///< file and time, or when and over what
};

struct Explanation {
  Machine machine;
  OperationOptions options;
  std::size_t bytes = 0;
  Operation operation;
  Prediction prediction;
  std::optional<Measured> measured;
  std::string not_measured;  ///< why there is nothing, where it is worth saying
  std::string left_out{};    ///< settings of this environment that calls heed, and this choice does not
};

/// Beyond so many ranks predictions take seconds, and tell how far they are.
inline constexpr std::uint32_t most_ranks_in_silence = 64;

/// `progress`: told only of so many ranks.
Result<Explanation> explain(const MachineOptions& machine, const OperationOptions& options, std::size_t bytes,
                            const std::string& algorithm, const Progress& progress = {});

/// "STRAIT_ALGORITHM=ring STRAIT_TUNING_FILE=..."; an error if one of them is not accepted.
Result<std::string> settings_left_out(const Environment& environment);

/// Nothing if the file has no such line. An error names the file, and that it is none of `strait perf`.
Result<std::optional<Measured>> find_measured(const std::string& path, const Explanation& about);

/// What `strait perf` has last measured on this machine with the settings of this environment, from the file at `path`.
Result<std::optional<Measured>> find_kept(const std::string& path, const Explanation& about,
                                          const Environment& environment);

std::string to_text(const Explanation& explanation);
std::string to_json(const Explanation& explanation);

/// Of each level of the machine the resource that a plan uses most, the busiest level first.
struct LevelUse {
  std::string level;
  std::string resource;
  double busy = 0;  ///< share of the time
};
std::vector<LevelUse> level_uses(const Machine& machine, const ClockResult& time);
/// The share of the binding resource; of "latency" what no resource has used; 0 of an estimate.
double binding_share(const ClockResult& time);

}  // namespace strait::sim
