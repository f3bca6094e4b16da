#pragma once

#include <string>

#include "doctor/finding.hpp"

namespace strait::doctor {

std::string to_text(const Findings& findings);
/// Formats findings as JSON: {"exit_code": 1, "findings": [{"severity": "warning", "check": ..., "what": ..., "cost":
/// ..., "fix": ...}]}
std::string to_json(const Findings& findings);

}  // namespace strait::doctor
