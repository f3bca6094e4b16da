#pragma once

#include "plan/request.hpp"

/// One constant a catalogue entry, each defined in the file of its family.
namespace strait::algorithms {

extern const Algorithm one_hop;
extern const Algorithm two_hop;
extern const Algorithm direct;

}  // namespace strait::algorithms
