#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strait {

/// Returns the name of a known variable that a misspelt one most likely stands for; "" if none is similar.
std::string_view nearest_variable(std::string_view name);

/// Returns one sentence for each variable among `entries` ("NAME=value", ended by NULL, as `environ`) whose name begins
/// with STRAIT_ and that nothing reads: "STRAIT_TIMOUT_MS is no variable of Strait: it changes nothing. Did you mean
/// STRAIT_TIMEOUT_MS?"
std::vector<std::string> describe_unknown_variables(const char* const* entries);

/// Logs these of the process's environment as warnings, at the first call in the process.
void warn_of_unknown_variables();

}  // namespace strait
