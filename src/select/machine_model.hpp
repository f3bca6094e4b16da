#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "kernels/layout.hpp"
#include "plan/clock.hpp"
#include "plan/request.hpp"
#include "select/calibration.hpp"
#include "select/exchange_rates.hpp"
#include "topology/topology.hpp"

/// Topologies as the clock sees them: ranks placed on devices, and what the bytes between them cross. Works for
/// machines that nobody has.
namespace strait {

/// Ranks on a machine: what plans may use of it, and what they take there.
struct Machine {
  std::string name;
  std::vector<std::string> places;   ///< of every rank: "host0/gpu3"
  std::vector<std::string> bus_ids;  ///< of their GPUs; empty: host ranks
  bool gpus = false;                 ///< else host ranks
  PlanRequest request;               ///< ranks, shape, and what links can do
  ClockModel clock;
  /// Of machines that pass bytes through host memory: twice the ranks, see with_host_sums().
  std::optional<ClockModel> host_sums;
  /// What kind each resource of the clocks is: "GPU link", "shared PCIe", "host memory", "CPU sums", "sockets",
  /// "NVLink", "NIC", "network". By index into ClockResult::resources.
  std::vector<std::string_view> levels;
  /// Of GPUs of one host, what joins them: where all are joined by NVLink, where any pair has no P2P, and otherwise.
  std::optional<kernels::ArenaKind> arena{};
  ExchangeRates exchange{};                    ///< of those that PCIe joins
  std::optional<std::size_t> encoded_bytes{};  ///< in the place of Borders::encoded_bytes
  /// Of two GPUs and more, by rank: what communicators find where NVLink joins some but not all (docs/gpus.md).
  std::vector<std::vector<std::uint32_t>> islands{};
  /// Where there are islands: the clocks of calls that these do not carry, for which no bridge is used.
  std::optional<ClockModel> staged{}, staged_host_sums{};
  /// Of a part of a machine, see part_of(): by rank of the machine, who make a call at the same time.
  std::vector<std::vector<std::uint32_t>> groups{};
};

/// The machine as such of its ranks see it that make calls of their own at the same time, each among the members of one
/// of the groups: requests are for one group, of which all have the same size, and the clocks are still those of all.
Machine part_of(const Machine& machine, std::vector<std::vector<std::uint32_t>> groups);
/// The same plan with what each rank receives in a lane of its own, for kernels send and take at the same time. Others
/// than those of one hop that copies stay as they are: their steps build upon one another.
Plan with_ways_apart(Plan plan);
/// The plan of one group, for all groups: with the ranks of the machine, of which others do nothing. A plan for twice
/// the ranks is one of with_host_sums().
Plan for_groups(const Plan& plan, const Machine& part);
/// The machine as calls that islands do not carry see it: all bytes go through host memory.
Machine without_islands(const Machine& machine);

inline constexpr std::uint32_t most_placed_ranks = 1024;  ///< every pair has a path

/// The first `ranks` GPUs (0: all). Bytes between GPUs without P2P are written to the memory of the writer's NUMA node
/// and read from there, once for all readers; others are pulled by the reader. An error: there are fewer GPUs, or two
/// have no path.
Result<Machine> place_on_gpus(const Topology& topology, std::uint32_t ranks, const GpuRates& rates = {});

/// Ranks that are threads on the CPUs, spread over the NUMA nodes in order; more ranks than CPUs take turns. 0: a rank
/// for each CPU. `rates` but for the DRAM's, which the topology gives.
Result<Machine> place_on_cpus(const Topology& topology, std::uint32_t ranks, const HostRates& rates = {});

/// The same plan with every lane that adds up what all ranks have on a CPU by the host memory instead of on the rank
/// itself: what rank r adds, rank n + r of the result adds, reaching r's input and output as a peer. A GPU then writes
/// its input once and reads the result once, where otherwise it reads everybody's parts as well. Scratch must not be
/// shared between such lanes and others; true of plans whose adding lanes use none.
Plan with_host_sums(const Plan& plan);
/// Whether that makes sense: some but not all lanes add, those that do use no scratch, and ranks signal to themselves
/// only.
bool has_host_sums(const Plan& plan);

}  // namespace strait
