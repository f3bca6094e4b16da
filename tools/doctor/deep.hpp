#pragma once

#include "doctor/finding.hpp"

namespace strait::doctor {

/// Runs verified collectives on a host rank for each usable core (at least two) for a few seconds, each bound to its
/// core: whether results are right, and which rank is slower at its own work than the others.
Findings check_under_load();

}  // namespace strait::doctor
