#pragma once

#include <cstddef>
#include <cstdint>

#include "base/environment.hpp"
#include "executor/host/reduce.hpp"

namespace strait::staged {

/// How large messages are staged. Equal on all ranks of a host, except for `simd`, `spin_us` and `nap_us`.
struct StagedOptions {
  std::uint32_t reducers = 4;               ///< threads a rank that add chunks up; at least 1
  std::uint32_t depth = 4;                  ///< slots
  std::size_t chunk_bytes = 4 << 20;        ///< at most; less where the memory has no room
  std::size_t least_chunk_bytes = 1 << 20;  ///< what a message is cut into at least, so that calls do not bind
  std::uint32_t wanted_rounds = 12;         ///< a message is cut into at least so many, down to least_chunk_bytes
  Simd simd = best_simd();
  std::uint32_t spin_us = 100;  ///< how long a reducer polls for a chunk before it naps between looks
  std::uint32_t nap_us = 20;    ///< the first nap; naps grow to ten times that
};

/// What the environment sets of it: STRAIT_CPU_REDUCERS.
Result<StagedOptions> staged_options(const Environment& environment);

}  // namespace strait::staged
