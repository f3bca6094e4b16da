#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "plan/plan_ratios.hpp"

/// The clock predicts how long a plan takes on a real or an imagined machine, by discrete-event simulation of all
/// ranks.
namespace strait {

/// A resource that ranks share. If the demand exceeds its rate, all its users slow down in the same proportion.
struct ClockResource {
  std::string name;
  double gbps = 0;
};

/// The path from one rank's memory to another rank. The path of a rank to itself is that of its writes into its own
/// links.
struct ClockPath {
  double latency_us = 0;                 ///< from publish (or signal) until the other end sees it
  double gbps = 0;                       ///< 0: limited only by the rank that moves the bytes
  std::vector<std::uint16_t> resources;  ///< resources that every byte crosses, as indices into ClockModel::resources
};

/// Rates at which one rank reaches memory, as GB/s of plain copies between the rank's own core cache and some other
/// place. 0: as fast as within the core's own cache.
struct ClockRates {
  std::size_t core_cache_bytes = 0;  ///< size of a core's own cache; 0: unlimited
  /// Copying to two destinations in the core's own cache, in bytes of the source. 0: each further destination costs
  /// half a copy.
  double two_copies_gbps = 0;
  double fetch_gbps = 0;    ///< from cache lines that another core has just written
  double replace_gbps = 0;  ///< into cache lines that another core has just read
  /// Copying to two destinations of which one is cache lines that another core has just read, in bytes of the source.
  /// 0: the costs of the two add up.
  double replace_beside_gbps = 0;
  double shared_read_gbps = 0;   ///< from the cache that all cores share
  double shared_write_gbps = 0;  ///< into the cache that all cores share
  double dram_read_gbps = 0;     ///< from DRAM, one core alone
  double dram_write_gbps = 0;    ///< into DRAM, one core alone
  double stream_gbps = 0;        ///< into DRAM with non-temporal stores, one core alone; 0: not used
  // The share of the DRAM bandwidth, which all ranks share, in bytes of a copy from DRAM to DRAM. Such a copy reads its
  // source, reads the lines that it overwrites, and writes them: three thirds.
  double dram_read_part = 1.0 / 3;    ///< cost of a byte that is read; a byte that is written costs the rest
  double dram_stream_part = 1.0 / 3;  ///< cost of a byte that is written with non-temporal stores
};

/// Whether a step writes to one destination only (alone), or to several, piece by piece in turn (beside).
enum class Writes : std::uint8_t { alone, beside };

struct ClockModel {
  std::uint32_t ranks = 1;
  double call_us = 0;               ///< cost of an operation on one rank, apart from its steps
  double step_us = 0;               ///< cost of a step, apart from its bytes
  double link_us = 0;               ///< cost of each link and signal of a step after the first
  double copy_gbps = 1;             ///< copy rate of one rank within its cache
  double reduce_gbps = 1;           ///< reduction rate of one rank, in bytes of all sources
  std::uint32_t lanes_at_once = 1;  ///< lanes of a rank that run at the same time (a host rank has one thread)
  std::uint32_t cores = 0;          ///< cores that the ranks share; 0: unlimited
  double switch_us = 0;             ///< cost of resuming after a rank has blocked, if there are fewer cores than ranks
  std::size_t cache_bytes = 0;      ///< last-level cache of all ranks; the part of the working set beyond it is in DRAM
  double dram_gbps = 0;             ///< copy rate in DRAM, shared by all ranks; 0: no limit
  ClockRates memory;
  std::uint32_t slots = 4;  ///< slots of each link
  std::vector<ClockResource> resources;
  std::vector<ClockPath> paths;  ///< indexed by from * ranks + to; for estimates those from rank 0 are enough
  /// Indexed like `paths`: the path from a link's writer to the slots that a reader reads. If empty, the writer's path
  /// to itself is used. Slots with several readers are written once, so a resource on the way to several of them counts
  /// once.
  std::vector<ClockPath> writes;
  PlanRatios ratios;  ///< factors by which predicted times are multiplied, for plans that were measured

  /// Returns the time that the rank itself takes to move a step's bytes within its cache: every source is read once,
  /// and every destination after the first costs as much as the second one of a copy.
  double move_us(const Step& step, double bytes) const;
  /// Returns the cost of the links and signals of a step that uses `ends` of them.
  double links_us(std::size_t ends) const { return ends > 1 ? link_us * static_cast<double>(ends - 1) : 0; }
  /// Returns the time that copying at a rate takes in excess of a copy within the own cache; none if the rate is 0.
  double extra_us(double bytes, double gbps) const;
  /// Returns the microseconds per byte that writing into cache lines which another core has just read costs, in excess
  /// of writing into the own cache.
  double replace_us_per_byte(Writes destination) const;
};

/// Measured rates of a host (src/select/calibration.hpp; docs/calibration.md describes how). The defaults are those of
/// a small server.
struct HostRates {
  double call_us = 0.15;                            ///< cost of a call on a communicator of one rank, less its one step
  double step_us = 0.04;                            ///< cost of a further slice of such a call, apart from its bytes
  double latency_us = 0.12;                         ///< from a store until another core that polls for it resumes
  double switch_us = 0.6;                           ///< from one thread to another on the same core, by yielding
  double copy_gbps = 60;                            ///< copy within a core's own cache
  double reduce_gbps = 60;                          ///< sum of two sources within a core's own cache, in bytes of both
  double dram_copy_gbps = 18;                       ///< copy from DRAM to DRAM, all cores together
  std::size_t cache_bytes = std::size_t{32} << 20;  ///< size of the cache that all cores share
  ClockRates memory{.core_cache_bytes = std::size_t{1} << 20,
                    .two_copies_gbps = 40,
                    .fetch_gbps = 20,
                    .replace_gbps = 25,
                    .replace_beside_gbps = 20,
                    .shared_read_gbps = 30,
                    .shared_write_gbps = 25,
                    .dram_read_gbps = 20,
                    .dram_write_gbps = 14,
                    .stream_gbps = 20};
};
/// Returns the model of host ranks with one thread each, on `cores` cores of one host. It has paths from the first
/// `writers` ranks only.
ClockModel host_model(std::uint32_t ranks, std::uint32_t cores, const HostRates& rates = {},
                      std::uint32_t writers = ~std::uint32_t{0});

/// The parameters of a Layout. If the caller gives a count for each block, `count` applies to every block.
struct ClockSize {
  std::size_t count = 0;
  std::size_t element_bytes = 1;
  std::size_t slice_bytes = 64 * 1024;
};

/// Returns the layout of the plans of all ranks, of which `plan` is one.
Layout layout_of(const RankPlan& plan, const ClockSize& size);

struct TimedStep {
  std::uint32_t rank = 0;
  std::uint32_t lane = 0;
  std::uint32_t step = 0;
  std::uint32_t slice = 0;
  double begin_us = 0;
  double end_us = 0;
};

struct ResourceUse {
  std::string name;
  double busy = 0;  ///< used share of its capacity, 0 to 1
};

struct ClockResult {
  double total_us = 0;                 ///< time including the plan's ratio; all other members are without it
  std::vector<ResourceUse> resources;  ///< "cores" and "dram", then those of the model
  std::string binding;                 ///< the most used resource, or "latency" if none is used by half
  std::vector<TimedStep> timeline;     ///< the simulated slices' steps; empty if not requested
  std::uint32_t slices = 0;
  /// Only the first slices of many are simulated; each further one adds as much as the second half of these on average.
  std::uint32_t simulated_slices = 0;
};

enum class Timeline : bool { none, kept };

/// Returns the name of the resource that is used most, the first one if several are equal, or "latency" if none is used
/// by half.
std::string binding_of(const std::vector<ResourceUse>& resources);

/// At most this many slices are simulated; the time of further ones is extrapolated.
inline constexpr std::uint32_t most_simulated_slices = 8;

/// Simulates the plan; deterministic. Fails if the plan deadlocks with the model's number of slots, or if the plan and
/// the model are for different numbers of ranks.
Result<ClockResult> simulate(const Plan& plan, const ClockSize& size, const ClockModel& model,
                             Timeline timeline = Timeline::kept);

}  // namespace strait
