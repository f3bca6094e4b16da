#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace strait::tools {

/// fmt::print throws where it cannot write, as to a full disk: no reason to end a measurement. What of standard output
/// did not arrive, `main` tells at the end.
template <class... Values>
void print(std::FILE* file, fmt::format_string<Values...> format, Values&&... values) {
  std::fputs(fmt::format(format, std::forward<Values>(values)...).c_str(), file);
}

/// Of what a file or a user holds, for a terminal: control characters as "\x1b", those of C1 in UTF-8 too.
inline std::string printable(std::string_view text) {
  std::string safe;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0)
      safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    else if (byte < 0x20 || byte == 0x7f)
      safe += fmt::format("\\x{:02x}", byte);
    else
      safe += text[i];
  }
  return safe;
}

}  // namespace strait::tools
