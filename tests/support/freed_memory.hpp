#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace strait::testing {

/// Returns whether `fails` returns true and does not write to freed memory. Many small blocks are allocated first,
/// which may reuse the memory of an earlier error's text; none of them may change.
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
