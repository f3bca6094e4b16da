#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strait {

/// The numbers of the current copy of an object that is described once for several copies.
struct CopyNumbers {
  std::optional<std::int64_t> host;  ///< value of {host}
  std::optional<std::int64_t> i;     ///< value of {i}
};

/// Replaces {i} and {host}, each optionally with one of + - / % and a number: "leaf{host/32}". Returns nullopt if
/// braces hold something else, or a number that `numbers` does not have.
std::optional<std::string> fill_in(std::string_view text, const CopyNumbers& numbers);

}  // namespace strait
