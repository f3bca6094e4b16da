#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "topology/survey.hpp"

namespace strait {

/// What NVML tells, as far as it answers.
struct NvmlSurvey {
  bool answered = false;          ///< the library was loaded and initialised, and gave a list of GPUs
  std::vector<SurveyedGpu> gpus;  ///< in NVML's order
  std::map<std::pair<std::size_t, std::size_t>, P2pStatus> p2p;  ///< by pairs of indices into gpus
  std::vector<std::string> notes;                                ///< what NVML did not answer, and why
};

/// Asks NVML. `library` is loaded for the duration of the call.
NvmlSurvey survey_nvml(const std::string& library);

}  // namespace strait
