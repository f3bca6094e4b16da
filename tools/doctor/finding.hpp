#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace strait::doctor {

enum class Severity : std::uint8_t { ok, note, warning, error };

/// The result of one check. `ok` and `note` require no action; a note is worth knowing, or says that something could
/// not be checked.
struct Finding {
  Severity severity = Severity::ok;
  std::string check;  ///< a fixed name for scripts, such as "pcie_link" or "memlock"
  std::string what;   ///< what was found, with its cause
  std::string cost;   ///< what the problem costs; "" if nothing
  std::string fix;
};

using Findings = std::vector<Finding>;

/// Returns the exit code of `strait doctor`: 0 if nothing needs fixing, 1 for warnings, 2 for errors.
inline int exit_code(const Findings& findings) {
  Severity worst = Severity::ok;
  for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
  return worst == Severity::error ? 2 : worst == Severity::warning ? 1 : 0;
}

}  // namespace strait::doctor
