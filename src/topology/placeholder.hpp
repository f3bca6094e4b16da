#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strait {

/// The numbers of the copy that is being made.
struct CopyNumbers {
  std::optional<std::int64_t> host;  ///< {host}
  std::optional<std::int64_t> i;     ///< {i}
};

/// Replaces {i} and {host}, also with one of + - / % and a number: "leaf{host/32}". nullopt if something else is in
/// braces, or a number is not known here.
std::optional<std::string> fill_in(std::string_view text, const CopyNumbers& numbers);

}  // namespace strait
