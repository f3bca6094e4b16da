#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace strait {

/// For a file or the screen. Names from the system and what its variables say may be in any encoding: what is no UTF-8
/// is replaced by U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& json, int indent = 2) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// What the parser found, in its words but for what it puts in front: its own name and number.
inline std::string plain_text(const nlohmann::json::exception& problem) {
  const std::string text = problem.what();
  const std::size_t end = text.starts_with('[') ? text.find("] ") : text.npos;
  return end == text.npos ? text : text.substr(end + 2);
}

}  // namespace strait
