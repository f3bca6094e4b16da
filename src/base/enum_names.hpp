#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Enumerations whose values, from 0 to `count` - 1, have a name().
namespace strait {

template <class T>
std::optional<T> from_name(std::string_view text, int count) {
  for (int i = 0; i < count; ++i)
    if (name(static_cast<T>(i)) == text) return static_cast<T>(i);
  return std::nullopt;
}

/// Lists the names, for messages.
template <class T>
std::string all_names(int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i == 0 ? "" : ", ") + std::string(name(static_cast<T>(i)));
  return all;
}

}  // namespace strait
