#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/plan.hpp"

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

struct ClockModel {
  std::uint32_t ranks = 1;
  double step_us = 0;               ///< cost of a step apart from its bytes
  double copy_gbps = 1;             ///< of one rank, from and to the cache; every further destination costs half a copy
  double reduce_gbps = 1;           ///< of one rank, bytes of all sources
  std::uint32_t lanes_at_once = 1;  ///< lanes of a rank that run at the same time (a host rank is one thread)
  std::uint32_t cores = 0;          ///< which the ranks share; 0: as many as are needed
  double switch_us = 0;             ///< for going on after blocking, where the cores are fewer than the ranks
  std::size_t cache_bytes = 0;  ///< last-level cache of all ranks; the part of the working set beyond it lies in DRAM
  double dram_gbps = 0;         ///< copy rate that all ranks share in DRAM; 0: no limit
  std::uint32_t slots = 4;      ///< of every link
  std::vector<ClockResource> resources;
  std::vector<ClockPath> paths;  ///< from * ranks + to
};

/// Measured (or assumed) rates of a host; the defaults are those of a small desktop.
struct HostRates {
  double step_us = 0.04;
  double latency_us = 0.12;
  double copy_gbps = 60;
  double reduce_gbps = 30;
  double dram_copy_gbps = 18;
  std::size_t cache_bytes = std::size_t{32} << 20;
  double switch_us = 1.5;
};
/// Host ranks, one thread each, on `cores` cores of one host.
ClockModel host_model(std::uint32_t ranks, std::uint32_t cores, const HostRates& rates = {});

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
  double total_us = 0;
  std::vector<ResourceUse> resources;  ///< "cores" and "dram", then those of the model
  std::string binding;                 ///< the resource that is used most, or "latency" if none is used by half
  std::vector<TimedStep> timeline;     ///< of the simulated slices
  std::uint32_t slices = 0;
  std::uint32_t simulated_slices = 0;  ///< of many slices the first ones; the others add as much as these on average
};

/// Deterministic. An error if the plan blocks for ever with the model's slots, or is for other ranks than the model.
Result<ClockResult> simulate(const Plan& plan, const ClockSize& size, const ClockModel& model);

}  // namespace strait
