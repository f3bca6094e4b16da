#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "perf/report.hpp"

namespace strait::perf {

/// Shows on stderr that a long run lives: one line that is overwritten on a terminal, else a line every ten seconds.
class Progress {
 public:
  Progress();
  void show(const std::string& what);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

/// What rank 0 does with the results: prints each as it comes, writes the files at the end, and keeps the times.
class Reporter {
 public:
  Reporter(const Options& options, int library_version);

  void begin(std::vector<RankInfo> ranks, int threads, TransportInfo transport, std::optional<BaselineInfo> baseline,
             std::optional<LinkRates> links);
  void remark(const std::string& line);  ///< a "# ..." line of the table
  /// Before begin(): larger ones do not fit into memory.
  void limit_sizes(std::size_t min_bytes, std::size_t max_bytes);
  void progress(const std::string& what) { progress_.show(what); }
  void add(const Row& row);
  Status finish();

 private:
  void keep();

  Report report_;
  Progress progress_;
};

}  // namespace strait::perf
