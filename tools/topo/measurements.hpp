#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/calibration.hpp"
#include "topology/topology.hpp"

/// `strait topo --measure`: measures the rates of this machine's links, each alone and all at the same time.
namespace strait::topo {

using Matrix = std::vector<std::vector<double>>;  ///< [from][to]; the diagonal is 0

/// Rates between threads on CPUs, as host ranks have them.
struct HostMeasurements {
  std::vector<int> cpus;      ///< a selection if there are many
  Matrix copy_gbps;           ///< [writer][reader]: a copy of what the other CPU has just written, one pair at a time
  Matrix latency_us;          ///< from a store until the other CPU has seen it
  double all_gbps = 0;        ///< the same copies on all usable CPUs at the same time; the slowest CPU's rate
  double dram_copy_gbps = 0;  ///< from DRAM to DRAM, sum of all usable CPUs
};
/// Takes seconds. Nothing else should run in the meantime.
HostMeasurements measure_host();

/// Rates of a GPU's link to the host, where up means to the host. Measured with copy engines and pinned memory on the
/// GPU's own NUMA node.
struct HostLink {
  double up_gbps = 0;
  double down_gbps = 0;
  double up_all_gbps = 0;  ///< while all GPUs copy in this direction
  double down_all_gbps = 0;
  double duplex_up_gbps = 0;  ///< while all GPUs copy in both directions
  double duplex_down_gbps = 0;
  double up_us = 0;  ///< time of a copy of 8 bytes, from the call until the caller sees that it has ended
  double down_us = 0;
};

struct GpuMeasurements {
  std::vector<std::string> names;
  std::vector<std::string> bus_ids;
  std::vector<HostLink> host_links;
  /// Granted by the driver; otherwise the driver stages copies through host memory.
  std::vector<std::vector<bool>> p2p;
  Matrix pair_gbps;               ///< copies between GPUs, one pair at a time
  Matrix pair_us;                 ///< time of a copy of 8 bytes
  std::vector<double> ring_gbps;  ///< copies from each GPU to the next one, all at the same time
};
/// Measures all GPUs. `topology` tells which CPUs are near a GPU. Returns an error that says what is missing (the
/// driver, GPUs, memory). Also returns an error if copies take longer than `longest_ms`; then the GPUs' memory is
/// leaked on purpose.
Result<GpuMeasurements> measure_gpus(const Topology& topology, const std::string& library = "libcuda.so.1",
                                     int longest_ms = 60'000);

/// Measures the costs of GPUs apart from links: launches, flags between pairs, and copies and sums in their own memory.
/// Results are those of the slowest GPU, and of the median pair for flags. GpuRates::host_sums_gbps is measured
/// elsewhere. Takes some seconds. Returns the same errors as measure_gpus(), and Code::unsupported if the driver cannot
/// compile the kernels.
Result<GpuRates> measure_kernels(const Topology& topology, const std::string& library = "libcuda.so.1",
                                 int longest_ms = 60'000);

/// Returns the topology with the measured rates for the host link of each GPU and for NVLinks. `origin` says how they
/// were measured.
Result<Topology> with_measured_rates(const Topology& topology, const GpuMeasurements& gpus, const std::string& origin);

struct Measurements {
  HostMeasurements host;
  std::vector<GpuMeasurements> gpus;  ///< one element, or none
  std::string no_gpus;                ///< why there are no measurements of GPUs
};
std::string to_text(const Measurements& measurements);
std::string to_json(const Measurements& measurements);

}  // namespace strait::topo
