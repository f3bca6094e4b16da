#include "doctor/check_calibration.hpp"

#include "select/link_rates.hpp"

namespace strait::doctor {
namespace {

/// Returns the slowest kind of path between two GPUs of a host; nvlink if there are no two.
PathKind slowest_path(const Topology& topology) {
  PathKind slowest = PathKind::nvlink;
  for (const DeviceId from : topology.all(DeviceKind::gpu))
    for (const DeviceId to : topology.all(DeviceKind::gpu)) {
      if (from == to || topology.host_of(from) != topology.host_of(to)) continue;
      const PathKind kind = topology.path(from, to).kind;
      if (kind == PathKind::host || (kind == PathKind::pcie && slowest == PathKind::nvlink)) slowest = kind;
    }
  return slowest;
}

}  // namespace

Findings check_calibration(const Topology& topology, const KnownRates& known) {
  const PathKind slowest = slowest_path(topology);
  if (slowest == PathKind::nvlink) return {};
  const auto links = known.links.find(topology_fingerprint(topology));
  if (links != known.links.end() && !links->second.empty())
    return {{Severity::ok, "gpu_calibration", "what the GPUs' links give is known: " + known.source, "", ""}};
  if (slowest == PathKind::pcie)
    return {{Severity::note, "gpu_calibration", "what the GPUs' PCIe links give together has not been measured",
             "predictions and choices go by their speed and width alone",
             "strait doctor --calibrate, on an idle machine"}};
  return {
      {Severity::warning, "gpu_calibration",
       "GPUs trade through host memory, and what their links give together has not been measured",
       "predictions do not see the ports that they share, and CPUs do not add up where that would spare half of the "
       "way down",
       "strait doctor --calibrate, on an idle machine"}};
}

}  // namespace strait::doctor
