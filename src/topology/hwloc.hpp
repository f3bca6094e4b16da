#pragma once

#include <map>
#include <string>
#include <vector>

#include "topology/survey.hpp"

namespace strait {

/// What libhwloc tells about locations: NUMA nodes, and where PCI devices and NICs are plugged in. It knows boards
/// whose firmware does not tell sysfs, or tells it wrong.
struct HwlocSurvey {
  bool answered = false;  ///< the library was loaded and describes this machine
  std::vector<SurveyedNuma> numas{};
  std::map<std::string, PciFunction> pci{};  ///< bridges, GPUs and NICs by bus id; widths as far as hwloc knows them
  std::vector<SurveyedNic> nics{};           ///< with name, bus id and NUMA node only
  std::vector<std::string> notes{};          ///< what hwloc did not answer, and why
};

/// Asks hwloc. `library` is loaded for the duration of the call.
HwlocSurvey survey_hwloc(const std::string& library);

}  // namespace strait
