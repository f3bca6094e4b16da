#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/error.hpp"
#include "perf/options.hpp"
#include "perf/results.hpp"

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
  std::string predicted_on;          ///< the simulated machine; empty: measured
};

/// Machine, versions, settings and results.
std::string to_json(const Report& report);

/// Of a drawing: an error unless its name ends in .svg, or is that of a device or pipe.
Status check_svg(const std::string& option, const std::string& path);

Status write_file(const std::string& path, const std::string& text);

/// That `write_file` will be able to, as far as can be told without writing: asked before what takes long.
Status check_writable(const std::string& path);

}  // namespace strait::perf
