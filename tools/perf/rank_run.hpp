#pragma once

#include <strait/strait.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "perf/call.hpp"
#include "perf/data.hpp"
#include "perf/options.hpp"
#include "perf/reporter.hpp"
#include "perf/results.hpp"

namespace strait::perf {

/// The measurement as one rank does it. All ranks run the same; decisions (how many iterations, what sizes) follow from
/// values that all ranks share.
class RankRun {
 public:
  /// `reporter` is null on all ranks but 0. `threads`: ranks of each process.
  RankRun(const Options& options, straitComm_t comm, Reporter* reporter, int threads);

  Status run();
  /// Wrong elements: as this rank counted its own, or as the ranks together did, whichever is more.
  std::int64_t wrong() const { return wrong_; }

 private:
  Status learn_ranks();
  Status limit_sizes(const std::vector<RankInfo>& ranks);
  Status run_subjects(void* send, void* receive);
  Status warm_up(const Subject& subject, void* send, void* receive);
  Status run_size(const Subject& subject, std::size_t bytes, void* send, void* receive);
  Result<Measurement> measure(Operation operation, void* send, void* receive);
  Status time_mean(const Call& call, Measurement& measurement);
  Status time_single_iterations(const Call& call, Measurement& measurement);
  Result<std::int64_t> verify(Operation operation, const Call& call, void* send, void* receive);

  Operation operation(const Subject& subject, std::size_t bytes, bool in_place) const;
  Status barrier();
  Status all_reduce(void* values, std::size_t count, straitDataType_t type, straitRedOp_t op);
  /// Replaces a rank's time by what --average makes of all.
  Status average(double& time_us);

  Options options_;
  straitComm_t comm_;
  Reporter* reporter_;
  int threads_;
  int rank_ = 0;
  int ranks_ = 0;
  std::uint64_t verified_calls_ = 0;
  std::int64_t wrong_ = 0;
};

}  // namespace strait::perf
