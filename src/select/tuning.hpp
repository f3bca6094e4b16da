#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/types.hpp"

/// The user's tuning file, which sets the algorithm of some calls where the user knows better than the clock.
/// docs/calibration.md describes its format (TOML).
namespace strait {

/// One [[override]] of the file: which calls it applies to, and what they run.
struct Override {
  Collective collective = Collective::all_reduce;
  std::size_t min_bytes = 0;  ///< of the larger of a rank's two buffers, as `strait perf` counts
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();
  std::uint32_t min_ranks = 1;
  std::uint32_t max_ranks = std::numeric_limits<std::uint32_t>::max();
  std::optional<DataType> type;  ///< empty: all
  std::string algorithm;         ///< catalogue name; empty: the fastest
  std::size_t slice_bytes = 0;   ///< 0: the fastest
  std::uint32_t lanes = 0;       ///< 0: as chosen without an override
  std::string place;             ///< file and line for messages: "tuning.toml:7"

  bool fits(Collective of, std::size_t bytes, DataType element, std::uint32_t ranks) const;
};

struct Tuning {
  std::vector<Override> overrides;    ///< in the order of the file
  std::vector<std::string> problems;  ///< of overrides that were left out, each with file and line

  /// Returns the first override that applies; nullptr if none does.
  const Override* find(Collective collective, std::size_t bytes, DataType type, std::uint32_t ranks) const;
  /// Summarises what must be equal on all ranks: the number of overrides and a hash of their contents.
  std::string summary() const;
};

/// Parses a tuning file. `name` is the file's name in messages.
Tuning parse_tuning(std::string_view text, const std::string& name);

/// Reads the file that STRAIT_TUNING_FILE names; returns no overrides if that is unset. Mistakes are logged, and the
/// rest of the file applies. With STRAIT_TUNING_STRICT=1 a mistake is an error that names file, line and problem.
Result<Tuning> load_tuning(const Environment& environment);

}  // namespace strait
