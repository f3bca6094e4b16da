#pragma once

#include <string>

#include "base/error.hpp"
#include "topology/topology.hpp"

namespace strait {

struct DetectOptions {
  std::string root = "";                           ///< before /sys and /proc: a copy of another machine's
  std::string hwloc_library = "libhwloc.so.15";    ///< "": do not ask it
  std::string nvml_library = "libnvidia-ml.so.1";  ///< "": do not ask it
  std::string verbs_library = "libibverbs.so.1";   ///< "": do not ask it
};

/// This machine, from sysfs, hwloc, NVML and verbs. What cannot be seen (containers hide, virtual machines invent) is
/// left out or assumed, and told in the notes; an error means a defect.
Result<Topology> detect(const DetectOptions& options = {});

}  // namespace strait
