#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace strait::tools {

/// fmt::print throws where it cannot write, as to a full disk: no reason to end a measurement. What of standard output
/// did not arrive, `main` tells at the end.
template <class... Values>
void print(std::FILE* file, fmt::format_string<Values...> format, Values&&... values) {
  std::fputs(fmt::format(format, std::forward<Values>(values)...).c_str(), file);
}

}  // namespace strait::tools
