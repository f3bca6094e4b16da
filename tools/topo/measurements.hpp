#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/calibration.hpp"
#include "topology/topology.hpp"

/// `strait topo --measure`: what the links of this machine give, alone and all at once.
namespace strait::topo {

using Matrix = std::vector<std::vector<double>>;  ///< [from][to]; the diagonal is 0

/// Threads on CPUs, as host ranks are.
struct HostMeasurements {
  std::vector<int> cpus;      ///< a selection, where there are many
  Matrix copy_gbps;           ///< from = the writer, to = the reader: a copy of what the other has just written, alone
  Matrix latency_us;          ///< from a store until the other has seen it
  double all_gbps = 0;        ///< the same copies on all usable CPUs at once, the slowest CPU
  double dram_copy_gbps = 0;  ///< from DRAM to DRAM, all usable CPUs together
};
/// Seconds. Nothing else should run meanwhile.
HostMeasurements measure_host();

/// The host link of a GPU; up is to the host. Copy engines, pinned memory on the GPU's own NUMA node.
struct HostLink {
  double up_gbps = 0;
  double down_gbps = 0;
  double up_all_gbps = 0;  ///< while all GPUs do the same
  double down_all_gbps = 0;
  double duplex_up_gbps = 0;  ///< while all GPUs copy both ways
  double duplex_down_gbps = 0;
  double up_us = 0;  ///< a copy of 8 bytes, from the call until it is seen to be done
  double down_us = 0;
};

struct GpuMeasurements {
  std::vector<std::string> names;
  std::vector<std::string> bus_ids;
  std::vector<HostLink> host_links;
  std::vector<std::vector<bool>> p2p;  ///< granted by the driver; else the driver stages through host memory
  Matrix pair_gbps;                    ///< copies between GPUs, one pair at a time
  Matrix pair_us;                      ///< of 8 bytes
  std::vector<double> ring_gbps;       ///< of each GPU to the next one, all at once
};
/// An error says what is missing: the driver, GPUs, memory. `topology` tells which CPUs are near.
/// Copies that take longer than `longest_ms` are an error too, and the GPUs' memory is given up then.
Result<GpuMeasurements> measure_gpus(const Topology& topology, const std::string& library = "libcuda.so.1",
                                     int longest_ms = 60'000);

/// What GPUs take apart from their links: launches, flags between pairs, copies and sums in their own memory, of the
/// slowest GPU and the middle pair. What the CPUs add for them is measured elsewhere. Some seconds; errors likewise,
/// and with Code::unsupported where the driver cannot compile.
Result<GpuRates> measure_kernels(const Topology& topology, const std::string& library = "libcuda.so.1",
                                 int longest_ms = 60'000);

/// Links of the topology with the rates that were measured: the host link of each GPU, and the NVLinks.
Result<Topology> with_measured_rates(const Topology& topology, const GpuMeasurements& gpus, const std::string& origin);

struct Measurements {
  HostMeasurements host;
  std::vector<GpuMeasurements> gpus;  ///< one, or none
  std::string no_gpus;                ///< why not
};
std::string to_text(const Measurements& measurements);
std::string to_json(const Measurements& measurements);

}  // namespace strait::topo
