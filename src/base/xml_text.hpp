#pragma once

#include <string>
#include <string_view>

namespace strait {

/// Returns text for XML or HTML, also for attributes: with &, <, > and " as entities.
inline std::string xml_text(std::string_view text) {
  std::string safe;
  for (const char c : text)
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  return safe;
}

}  // namespace strait
