#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace strait {

/// Formats JSON for a file or the screen. Names from the system and values of environment variables may be in any
/// encoding: bytes that are not UTF-8 are replaced by U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& json, int indent = 2) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// Returns the text of that name in an object; "" if there is none.
inline std::string text_in(const nlohmann::json& json, const char* name) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Returns the parser's message without the prefix that nlohmann::json adds (the exception's name and number).
inline std::string plain_text(const nlohmann::json::exception& problem) {
  const std::string text = problem.what();
  const std::size_t end = text.starts_with('[') ? text.find("] ") : text.npos;
  return end == text.npos ? text : text.substr(end + 2);
}

}  // namespace strait
