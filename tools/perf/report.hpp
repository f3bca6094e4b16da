#pragma once

#include <optional>
#include <span>
#include <string>

#include "perf/options.hpp"
#include "perf/results.hpp"
#include "predicted_on.hpp"

namespace strait::perf {

/// A whole run: what --json and --plot write.
struct Report {
  Options options;
  int library_version = 0;
  std::vector<RankInfo> ranks;
  std::vector<Row> rows;
  TransportInfo transport;
  std::optional<BaselineInfo> baseline{};
  std::optional<LinkRates> links{};  ///< of the slowest rank, where floors were asked for
  tools::PredictedOn predicted_on;
};

/// Machine, versions, settings and results.
std::string to_json(const Report& report);

}  // namespace strait::perf
