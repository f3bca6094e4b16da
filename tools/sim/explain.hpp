#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"
#include "sim/machine_source.hpp"

/// `strait explain`: which plan is chosen and why, as text for people and as JSON for programs.
namespace strait::sim {

/// A time that `strait perf` measured for the same operation on the same number of ranks.
struct Measured {
  double time_us = 0;
  double bus_gbps = 0;
  std::string where;  ///< file and time of the measurement, or when and over which transport
};

struct Explanation {
  Machine machine;
  OperationOptions options;
  std::size_t bytes = 0;
  Operation operation;
  Prediction prediction;
  std::optional<Measured> measured;
  std::string not_measured;  ///< why there is no measured time, if that is worth telling; otherwise empty
  std::string left_out{};    ///< settings of the environment that apply to calls but were not used for this prediction
};

/// With more ranks than this a prediction takes seconds, so its progress is reported.
inline constexpr std::uint32_t most_ranks_in_silence = 64;

/// Predicts the operation on the machine. `progress` is called only with more than most_ranks_in_silence ranks. A
/// non-empty `algorithm` is predicted instead of the choice.
Result<Explanation> explain(const MachineOptions& machine, const OperationOptions& options, std::size_t bytes,
                            const std::string& algorithm, const Progress& progress = {});

/// Returns the settings of the environment that explain() ignores: "STRAIT_ALGORITHM=ring STRAIT_TUNING_FILE=...".
/// Returns an error if the value of one is invalid.
Result<std::string> settings_left_out(const Environment& environment);

/// Returns the time of the operation in a file of `strait perf --json`, or nothing if the file does not contain the
/// operation. Returns an error that names the file if it is no output of `strait perf --json`.
Result<std::optional<Measured>> find_measured(const std::string& path, const Explanation& about);

/// Returns the last time that `strait perf` measured on this machine with the current settings of the environment, from
/// the file at `path`; nothing if there is none.
Result<std::optional<Measured>> find_kept(const std::string& path, const Explanation& about,
                                          const Environment& environment);

std::string to_text(const Explanation& explanation);
std::string to_json(const Explanation& explanation);

/// The busiest resource of one level of the machine while a plan runs.
struct LevelUse {
  std::string level;
  std::string resource;
  double busy = 0;  ///< used share of the resource's capacity, 0 to 1
};
/// Returns the busiest resource of each level that the plan uses, the busiest level first.
std::vector<LevelUse> level_uses(const Machine& machine, const ClockResult& time);
/// Returns how busy the binding resource is. If "latency" binds, returns the share of time in which even the busiest
/// resource is idle. Returns 0 for an estimate, which has no use of resources.
double binding_share(const ClockResult& time);

}  // namespace strait::sim
