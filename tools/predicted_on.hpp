#pragma once

#include <string>

namespace strait::tools {

/// The machine for which figures are predicted.
struct PredictedOn {
  std::string machine;  ///< its name; empty: the figures are measured
  std::string caveat;   ///< what else a reader of the figures must know; empty: nothing
};

}  // namespace strait::tools
