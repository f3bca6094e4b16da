#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "topology/survey.hpp"

namespace strait {

/// What NVML says, as far as it answers.
struct NvmlSurvey {
  bool answered = false;                                         ///< loaded, initialised, and gave a list of GPUs
  std::vector<SurveyedGpu> gpus;                                 ///< in NVML's order
  std::map<std::pair<std::size_t, std::size_t>, P2pStatus> p2p;  ///< of indices into gpus
  std::vector<std::string> notes;                                ///< what it did not answer, and why
};

/// Loads `library` for the time of the call.
NvmlSurvey survey_nvml(const std::string& library);

}  // namespace strait
