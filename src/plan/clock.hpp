#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/plan.hpp"
#include "plan/plan_ratios.hpp"

/// The clock: how long a plan takes on a machine that need not exist, by discrete-event simulation of all ranks.
namespace strait {

/// Something that all ranks share. Those who use it at once slow one another down in equal proportion.
struct ClockResource {
  std::string name;
  double gbps = 0;
};

/// The way from one rank's memory to another rank. Of a rank to itself: what it writes into its own links.
struct ClockPath {
  double latency_us = 0;                 ///< from publishing (or signalling) until the other end sees it
  double gbps = 0;                       ///< 0: no limit but that of the rank that moves the bytes
  std::vector<std::uint16_t> resources;  ///< that every byte crosses, indices into ClockModel::resources
};

/// What memory gives one rank, as GB/s of plain copies of which one side lies in the own cache of the rank's core and
/// the other elsewhere. 0: it costs no more than in the own cache.
struct ClockRates {
  std::size_t core_cache_bytes = 0;  ///< a core's own cache; 0: without limit
  double two_copies_gbps =
      0;  ///< of the source, to two destinations in the own cache; 0: each further one costs half a copy
  double fetch_gbps = 0;           ///< from lines that another core has just written
  double replace_gbps = 0;         ///< into lines that another core has just read
  double replace_beside_gbps = 0;  ///< of the source, to two destinations of which one is such lines; 0: as both alone
  double shared_read_gbps = 0;     ///< from the cache that all cores share
  double shared_write_gbps = 0;    ///< into it
  double dram_read_gbps = 0;       ///< from DRAM, one core alone
  double dram_write_gbps = 0;      ///< into DRAM, one core alone
  double stream_gbps = 0;          ///< into DRAM around the caches, one core alone; 0: outputs are never written so
  // Of the DRAM that all share, in bytes of a copy from DRAM to DRAM. A copy reads its source, reads what it is about
  // to overwrite, and writes: three thirds.
  double dram_read_part = 1.0 / 3;    ///< what a byte takes that is read; writing takes the rest
  double dram_stream_part = 1.0 / 3;  ///< what a byte takes that is written around the caches
};

/// Where a step writes: to the only destination, or to one of several, which are written piece by piece in turn.
enum class Writes : std::uint8_t { alone, beside };

struct ClockModel {
  std::uint32_t ranks = 1;
  double call_us = 0;               ///< of an operation on one rank, apart from its steps
  double step_us = 0;               ///< cost of a step apart from its bytes
  double end_us = 0;                ///< of every link and signal of a step beyond the first
  double copy_gbps = 1;             ///< of one rank, from and to the cache
  double reduce_gbps = 1;           ///< of one rank, bytes of all sources
  std::uint32_t lanes_at_once = 1;  ///< lanes of a rank that run at the same time (a host rank is one thread)
  std::uint32_t cores = 0;          ///< which the ranks share; 0: as many as are needed
  double switch_us = 0;             ///< for going on after blocking, where the cores are fewer than the ranks
  std::size_t cache_bytes = 0;  ///< last-level cache of all ranks; the part of the working set beyond it lies in DRAM
  double dram_gbps = 0;         ///< copy rate that all ranks share in DRAM; 0: no limit
  ClockRates memory;
  std::uint32_t slots = 4;  ///< of every link
  std::vector<ClockResource> resources;
  std::vector<ClockPath> paths;  ///< from * ranks + to; for estimates those from rank 0 are enough
  /// Likewise: what the writer of a link crosses to the slots that this reader reads, if not what it crosses to itself.
  /// Slots with several readers are written once: what leads to more than one of them counts once.
  std::vector<ClockPath> writes;
  PlanRatios ratios;  ///< by which the time of a plan is multiplied, where it was measured

  /// Microseconds a byte into lines that another core has just read, beyond one into the own cache.
  double replace_us_per_byte(Writes destination) const;
};

/// Measured rates of a host (src/select/calibration.hpp; docs/calibration.md says how); the defaults are those of a
/// small server.
struct HostRates {
  double call_us = 0.15;                            ///< of a call on a communicator of one rank, less its one step
  double step_us = 0.04;                            ///< what a further slice adds to such a call, apart from its bytes
  double latency_us = 0.12;                         ///< from a store until another core that waits for it goes on
  double switch_us = 0.6;                           ///< from one thread to another by yielding the core
  double copy_gbps = 60;                            ///< within the own cache of a core
  double reduce_gbps = 60;                          ///< likewise, two sources, bytes of both
  double dram_copy_gbps = 18;                       ///< from DRAM to DRAM, of all cores together
  std::size_t cache_bytes = std::size_t{32} << 20;  ///< which all cores share
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
/// Host ranks, one thread each, on `cores` cores of one host. With paths from the first `writers` of them.
ClockModel host_model(std::uint32_t ranks, std::uint32_t cores, const HostRates& rates = {},
                      std::uint32_t writers = ~std::uint32_t{0});

/// As in Layout. Where the caller gives a count for each block, `count` is that of every block.
struct ClockSize {
  std::size_t count = 0;
  std::size_t element_bytes = 1;
  std::size_t slice_bytes = 64 * 1024;
};

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
  double busy = 0;  ///< share of its capacity that was used, 0 ... 1
};

struct ClockResult {
  double total_us = 0;                 ///< with the ratio of the plan; what follows is without it
  std::vector<ResourceUse> resources;  ///< "cores" and "dram", then those of the model
  std::string binding;                 ///< the resource that is used most, or "latency" if none is used by half
  std::vector<TimedStep> timeline;     ///< of the simulated slices, unless it was not asked for
  std::uint32_t slices = 0;
  std::uint32_t simulated_slices = 0;  ///< of many slices the first ones; the others add as much as these on average
};

enum class Timeline : bool { none, kept };

/// The first of those that are used most.
std::string binding_of(const std::vector<ResourceUse>& resources);

/// Of many slices the first ones; what further ones add is taken from these.
inline constexpr std::uint32_t most_simulated_slices = 8;

/// Deterministic. An error if the plan blocks for ever with the model's slots, or is for other ranks than the model.
Result<ClockResult> simulate(const Plan& plan, const ClockSize& size, const ClockModel& model,
                             Timeline timeline = Timeline::kept);

}  // namespace strait
