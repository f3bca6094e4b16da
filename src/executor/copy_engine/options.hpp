#pragma once

#include <cstddef>
#include <cstdint>

namespace strait::copy_engine {

/// How large messages are staged. Equal on all ranks of a host.
struct StagedOptions {
  std::uint32_t depth = 4;                  ///< slots
  std::size_t chunk_bytes = 8 << 20;        ///< at most; less where the memory has no room
  std::size_t least_chunk_bytes = 1 << 20;  ///< what a message is cut into at least, so that calls do not bind
  std::uint32_t wanted_rounds = 12;         ///< a message is cut into at least so many, down to least_chunk_bytes
};

}  // namespace strait::copy_engine
