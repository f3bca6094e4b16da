#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace strait {

/// For a file or the screen. Names from the system and what its variables say may be in any encoding: what is no UTF-8
/// is replaced by U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& json, int indent = 2) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace strait
