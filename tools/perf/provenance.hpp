#pragma once

#include <nlohmann/json_fwd.hpp>

namespace strait::perf {

/// Where a result comes from: time, Strait's version and git commit, compiler and machine. Every results file holds it.
nlohmann::ordered_json provenance();

}  // namespace strait::perf
