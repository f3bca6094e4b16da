#pragma once

#include <strait/strait.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "perf/baseline.hpp"
#include "perf/call.hpp"
#include "perf/data.hpp"
#include "perf/gpu.hpp"
#include "perf/memory.hpp"
#include "perf/options.hpp"
#include "perf/reporter.hpp"
#include "perf/results.hpp"

namespace strait::perf {

/// Makes a call, or puts it on the GPU's stream.
using Enqueue = std::function<Status()>;

/// The measurement as one rank does it. All ranks run the same; decisions (how many iterations, what sizes) follow from
/// values that all ranks share.
class RankRun {
 public:
  /// `control` joins the same ranks as host ranks; without `gpu` (null) it is also what is measured. Both must outlive
  /// this. `reporter` is null on all ranks but 0. `threads`: ranks of each process.
  RankRun(const Options& options, straitComm_t control, Gpu* gpu, Reporter* reporter, int threads);

  /// After an error the communicators are aborted.
  Status run();
  /// Wrong elements: as this rank counted its own, or as the ranks together did, whichever is more.
  std::int64_t wrong() const { return wrong_; }

 private:
  Status measure_all();
  Status find_settings();
  /// Or leaves it: whether sums are taken in the order of ranks with this STRAIT_ALGORITHM.
  bool forces_rank_order(const std::string& name) const;
  Status learn_ranks();
  /// For --floors.
  Status measure_links(std::string_view transport);
  Status limit_sizes(const std::vector<RankInfo>& ranks);
  /// Says up to which size calls have no elements: less than one, or too few for each rank to have 16 bytes.
  void remark_empty_sizes() const;
  /// What a buffer has behind its size, and how far those of calls in a group are apart.
  std::size_t beyond_bytes() const;
  std::size_t place_bytes(std::size_t bytes) const;
  std::size_t aggregated() const { return static_cast<std::size_t>(options_.aggregated); }
  Status allocate(std::optional<Memory>& buffer);
  Status run_subjects();
  Status warm_up(const Subject& subject);
  Status run_size(const Subject& subject, std::size_t bytes);

  // One size in one place: measure.cpp.
  struct Contender;
  Result<std::vector<Measurement>> measure(Operation operation);
  Status prepare(const Operation& operation, Contender& contender);
  Status record_graphs(const Operation& operation, Contender& contender);
  Status keep_to_budget(Contender& contender, double time_us);
  Status time_in_turns(std::vector<Contender>& contenders);
  Status time_mean(const Contender& contender, Measurement& measurement);
  Status time_single_iterations(const Contender& contender, Measurement& measurement);
  Status run_once(const Contender& contender);
  Result<std::int64_t> verify(Operation operation, const Contender& contender);
  /// Where the first call of a buffer begins, as the host sees it.
  std::byte* host_contents(const Memory& memory) const;
  /// Fills a buffer on whatever side it lies.
  Status fill(const Operation& operation, const Contents& contents, Memory& memory);
  /// The elements of a buffer that differ from what it must hold.
  Result<std::size_t> wrong_in(const Operation& operation, const Contents& contents, Memory& memory);

  WireFormat wire_of(const Subject& subject) const;
  Operation operation(const Subject& subject, std::size_t bytes, bool in_place) const;
  /// Where the calls of a group lie in the buffers.
  std::vector<std::size_t> places(const Operation& operation) const;
  /// One call of Strait's, or of the baseline's; or a group of them.
  Enqueue strait_call(const Operation& operation) const;
  Enqueue baseline_call(const Operation& operation) const;
  bool is_checked(const Operation& operation) const;
  int turns() const { return baseline_ ? options_.turns : 1; }
  /// Until all calls are complete. Calls of host ranks are on return.
  Status complete();
  Status barrier();
  /// Replaces a rank's time by what --average makes of all.
  Status average(double& time_us);

  Options options_;
  straitComm_t control_;  ///< host ranks
  Gpu* gpu_;              ///< null: host ranks
  straitComm_t comm_;     ///< what is measured
  Reporter* reporter_;
  int threads_;
  std::optional<LinkRates> links_{};  ///< the slowest rank's
  bool in_rank_order_ = true;         ///< sums are taken so, as far as is known
  std::optional<Memory> send_, receive_;
  std::unique_ptr<Baseline> baseline_;  ///< null: Strait alone. It goes before the buffers that it knows
  WireFormat wire_ = WireFormat::off;
  int rank_ = 0;
  int ranks_ = 0;
  std::size_t check_threads_ = 1;  ///< this rank's share of the host's
  std::uint64_t verified_calls_ = 0;
  std::int64_t wrong_ = 0;
};

}  // namespace strait::perf
