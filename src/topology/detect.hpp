#pragma once

#include <string>

#include "base/error.hpp"
#include "topology/topology.hpp"

namespace strait {

struct DetectOptions {
  std::string root = "";  ///< prefix of /sys and /proc, to read a copy of another machine's files
  std::string hwloc_library = "libhwloc.so.15";    ///< "": hwloc is not used
  std::string nvml_library = "libnvidia-ml.so.1";  ///< "": NVML is not used
  std::string verbs_library = "libibverbs.so.1";   ///< "": libibverbs is not used
};

/// Detects this machine from sysfs, hwloc, NVML and libibverbs. What cannot be seen (containers hide devices, virtual
/// machines show devices of their own making) is left out or assumed, and the topology's notes say so. An error means a
/// defect in Strait.
Result<Topology> detect(const DetectOptions& options = {});

}  // namespace strait
