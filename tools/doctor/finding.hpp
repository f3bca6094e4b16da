#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace strait::doctor {

enum class Severity : std::uint8_t { ok, note, warning, error };

/// One thing that was looked at. `ok` and `note` need nothing done; a note is worth knowing, or could not be looked at.
struct Finding {
  Severity severity = Severity::ok;
  std::string check;  ///< a fixed name for scripts: "pcie_link", "memlock"
  std::string what;   ///< what was found, and the cause
  std::string cost;   ///< what it costs; "" of what costs nothing
  std::string fix;
};

using Findings = std::vector<Finding>;

/// `strait doctor`'s exit code: 0 nothing to mend, 1 warnings, 2 errors.
inline int exit_code(const Findings& findings) {
  Severity worst = Severity::ok;
  for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
  return worst == Severity::error ? 2 : worst == Severity::warning ? 1 : 0;
}

}  // namespace strait::doctor
