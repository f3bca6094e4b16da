#pragma once

#include <map>
#include <string>
#include <vector>

#include "topology/survey.hpp"

namespace strait {

/// What libhwloc says of where things are: NUMA nodes, and what PCI devices and NICs are plugged into. It knows more
/// than sysfs of boards whose firmware does not say, or says it wrong.
struct HwlocSurvey {
  bool answered = false;  ///< loaded, and described this machine
  std::vector<SurveyedNuma> numas{};
  std::map<std::string, PciFunction> pci{};  ///< bridges, GPUs and NICs by bus id; of the widths those that it knows
  std::vector<SurveyedNic> nics{};           ///< name, bus id and NUMA node only
  std::vector<std::string> notes{};          ///< what it did not answer, and why
};

/// Loads `library` for the time of the call.
HwlocSurvey survey_hwloc(const std::string& library);

}  // namespace strait
