#pragma once

#include <string>

#include "topology/survey.hpp"

namespace strait {

/// What sysfs below `root` says: NUMA nodes, PCI, NICs. GPUs are those that PCI shows, in the order of their addresses.
HostSurvey survey_sysfs(const std::string& root);

}  // namespace strait
