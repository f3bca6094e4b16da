#pragma once

#include <string>

#include "topology/survey.hpp"

namespace strait {

/// Reads from sysfs below `root`: NUMA nodes, PCI functions and NICs. GPUs are those among the PCI functions, in the
/// order of their addresses.
HostSurvey survey_sysfs(const std::string& root);

}  // namespace strait
