#include "doctor/print.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"

namespace strait::doctor {
namespace {

constexpr std::array names{"ok", "note", "warning", "error"};

const char* name(Severity severity) { return names[static_cast<std::size_t>(severity)]; }

}  // namespace

std::string to_text(const Findings& findings) {
  std::string text;
  for (const Severity severity : {Severity::error, Severity::warning, Severity::note, Severity::ok})
    for (const Finding& finding : findings) {
      if (finding.severity != severity) continue;
      text += fmt::format("{:<8} {}: {}\n", name(severity), finding.check, finding.what);
      if (!finding.cost.empty()) text += fmt::format("{:<8}   costs: {}\n", "", finding.cost);
      if (!finding.fix.empty()) text += fmt::format("{:<8}   fix: {}\n", "", finding.fix);
    }
  return text;
}

std::string to_json(const Findings& findings) {
  nlohmann::ordered_json json{{"exit_code", exit_code(findings)}, {"findings", nlohmann::ordered_json::array()}};
  for (const Finding& finding : findings)
    json["findings"].push_back({{"severity", name(finding.severity)},
                                {"check", finding.check},
                                {"what", finding.what},
                                {"cost", finding.cost},
                                {"fix", finding.fix}});
  return json_text(json);
}

}  // namespace strait::doctor
