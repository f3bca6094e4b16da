#pragma once

#include <cstddef>
#include <cstdint>

namespace strait::copy_engine {

/// How large messages are staged. Must be equal on all ranks of a host.
struct StagedOptions {
  std::uint32_t depth = 4;  ///< number of slots
  /// The largest chunk; chunks are smaller if the memory has too little room.
  std::size_t chunk_bytes = 8 << 20;
  /// The smallest chunk, so that the cost of driver calls is not the limit.
  std::size_t least_chunk_bytes = 1 << 20;
  /// The number of chunks into which a message is cut at least, unless they would be smaller than least_chunk_bytes.
  std::uint32_t wanted_rounds = 12;
};

}  // namespace strait::copy_engine
