#include "executor/copy_engine/windows.hpp"

#include <algorithm>
#include <string>

namespace strait::copy_engine {

Result<StagedWindows> StagedWindows::within(std::size_t budget_bytes, std::uint32_t ranks, std::uint32_t depth,
                                            std::size_t most_chunk_bytes) {
  constexpr std::size_t least_chunk_bytes = 64 << 10;
  constexpr std::uint32_t most_ranks = 1024, most_depth = 64;
  if (ranks == 0 || depth == 0 || ranks > most_ranks || depth > most_depth)
    return fail(Code::invalid_argument, "staging windows of " + std::to_string(ranks) + " ranks and " +
                                            std::to_string(depth) + " slots; there can be 1 to " +
                                            std::to_string(most_ranks) + " ranks and 1 to " +
                                            std::to_string(most_depth) + " slots");
  StagedWindows windows{.ranks = ranks, .depth = depth, .chunk_bytes = 0};
  const std::size_t chunks = std::size_t{depth} * ranks, words = windows.words_bytes();
  const std::size_t room = budget_bytes > words ? (budget_bytes - words) / chunks : 0;
  windows.chunk_bytes = std::min(room, most_chunk_bytes) / alignment_bytes * alignment_bytes;
  if (windows.chunk_bytes < least_chunk_bytes)
    return fail(Code::invalid_argument,
                "staging windows of " + std::to_string(budget_bytes) + " bytes and chunks of at most " +
                    std::to_string(most_chunk_bytes) + " leave " + std::to_string(ranks) + " ranks and " +
                    std::to_string(depth) + " slots chunks of only " + std::to_string(windows.chunk_bytes) +
                    " bytes; give them at least " + std::to_string(words + chunks * least_chunk_bytes) +
                    " bytes in all and chunks of 65536, or fewer slots");
  return windows;
}

}  // namespace strait::copy_engine
