#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace strait::testing {

/// Whether a call fails as it should, and leaves memory alone that may have been that of an earlier error's text.
template <class F>
bool fails_and_writes_nowhere(F&& fails) {
  std::vector<std::string> blocks;
  for (std::size_t bytes = 16; bytes < 256; ++bytes) blocks.emplace_back(bytes, 'x');
  const bool has_failed = fails();
  return has_failed && std::all_of(blocks.begin(), blocks.end(), [](const std::string& block) {
           return block.find_first_not_of('x') == std::string::npos;
         });
}

}  // namespace strait::testing
