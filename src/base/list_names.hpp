#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace strait {

/// Formats a list of names for a message; after a few it ends in "and 12 more".
inline std::string list_names(const std::vector<std::string>& names) {
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

}  // namespace strait
