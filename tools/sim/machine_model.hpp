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

/// Turns topologies into models for the clock: ranks placed on devices, and the resources that bytes between them
/// cross. Works for machines that are not at hand.
namespace strait {

/// Ranks placed on a machine: the request for plans (what they may use) and the clock (what they cost).
struct Machine {
  std::string name;
  std::vector<std::string> places;   ///< by rank: "host0/gpu3"
  std::vector<std::string> bus_ids;  ///< PCI addresses of the ranks' GPUs; empty: host ranks
  bool gpus = false;                 ///< whether ranks are GPUs; otherwise host ranks
  PlanRequest request;               ///< number of ranks, shape, and abilities of the links
  ClockModel clock;
  /// The clock for plans of with_host_sums(), which have twice the ranks. Only for GPUs that exchange through host
  /// memory.
  std::optional<ClockModel> host_sums;
  /// The kind of each resource, by index into ClockResult::resources: "CPU", "DRAM", "GPU link", "shared PCIe", "host
  /// memory", "CPU sums", "sockets", "NVLink", "NIC", "network".
  std::vector<std::string_view> levels;
  /// For GPUs of one host, what joins them: `nvlink` if NVLink joins all, `host` if any pair has no P2P, otherwise
  /// `pcie`.
  std::optional<kernels::ArenaKind> arena{};
  ExchangeRates exchange{};                    ///< of GPUs that NVLink does not join
  std::optional<std::size_t> encoded_bytes{};  ///< if set, replaces Borders::encoded_bytes
  /// The islands that communicators form, each the ranks of two or more GPUs that NVLink joins; only if some pairs of
  /// GPUs have no P2P (docs/gpus.md).
  std::vector<std::vector<std::uint32_t>> islands{};
  /// If there are islands, the clocks for calls that do not use them: no bytes cross NVLink bridges.
  std::optional<ClockModel> staged{}, staged_host_sums{};
  /// For a part of a machine (see part_of()): the ranks of the machine in each group that makes a call of its own.
  std::vector<std::vector<std::uint32_t>> groups{};
};

/// Returns the machine as ranks see it that make a call within each of `groups` at the same time. All groups have the
/// same size. The request is for one group; the clocks are still those of all ranks of the machine.
Machine part_of(const Machine& machine, std::vector<std::vector<std::uint32_t>> groups);
/// Moves the steps that receive into separate lanes, because kernels send and receive at the same time. Only for plans
/// that copy in one hop; others are returned unchanged, because their steps depend on one another.
Plan with_receives_in_own_lanes(Plan plan);
/// Extends the plan of one group to all groups of `part`. The result is for all ranks of the machine; ranks of no group
/// do nothing. A plan for twice the ranks of a group is one of with_host_sums(), and so is its result.
Plan for_groups(const Plan& plan, const Machine& part);
/// Returns the machine for calls that do not use islands: all bytes go through host memory.
Machine without_islands(const Machine& machine);

inline constexpr std::uint32_t most_placed_ranks = 1024;  ///< limited because the clock has a path for every pair

/// Places ranks on the first `ranks` GPUs (0: all). Bytes between GPUs without P2P are written to the memory of the
/// writer's NUMA node, once for all readers, and read from there; others are pulled by the reader. Returns an error if
/// there are fewer GPUs, or if two of them have no path.
Result<Machine> place_on_gpus(const Topology& topology, std::uint32_t ranks, const GpuRates& rates = {});

/// Places ranks as threads on CPUs, spread over the NUMA nodes of the first host in order; more ranks than CPUs take
/// turns. With `ranks` == 0 there is one rank for each CPU. `rates` apply, but for those of DRAM, which the topology
/// gives if it knows them.
Result<Machine> place_on_cpus(const Topology& topology, std::uint32_t ranks, const HostRates& rates = {});

/// Returns the plan with those lanes moved to CPUs that compute the final sums. The lanes of rank r that add
/// contributions of all ranks become rank n + r, a CPU beside the host memory, which accesses r's input and output as a
/// peer. A GPU then writes its input once and reads the result once, instead of also reading everybody's parts. Such
/// lanes must not share scratch with others; this holds for plans whose adding lanes use none.
Plan with_host_sums(const Plan& plan);
/// Whether with_host_sums() applies: some but not all lanes of each rank add, those use no scratch, and ranks signal
/// only to themselves.
bool has_host_sums(const Plan& plan);

}  // namespace strait
