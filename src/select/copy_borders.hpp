#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

namespace strait {

/// From which size of the larger buffer on copy engines carry calls; 0: none.
struct CopyBorders {
  std::size_t sums_bytes = 0;       ///< an all-reduce, a reduce: it has as many steps, and moves no more
  std::size_t scattered_bytes = 0;  ///< a reduce-scatter
  std::size_t others_bytes = 0;     ///< what else is no message
  std::size_t messages_bytes = 0;   ///< of a message its own bytes

  static constexpr CopyBorders all_from(std::size_t bytes) { return {bytes, bytes, bytes, bytes}; }
  constexpr std::size_t of(Collective collective) const {
    if (collective == Collective::all_reduce || collective == Collective::reduce) return sums_bytes;
    if (collective == Collective::send_recv) return messages_bytes;
    return collective == Collective::reduce_scatter ? scattered_bytes : others_bytes;
  }
};
/// With few thread blocks kernels move less than copy engines: from which sizes on, two and four H200 have shown. Where
/// no SMs are to be used, whatever takes none goes by copy engines. Messages do where they are asked to only: on
/// streams that share a hardware queue, a rank that posts one by one what its peer posts as a group could wait for
/// ever. Of GPUs that reach one another's memory.
CopyBorders copy_borders_of(std::uint32_t max_sms);

}  // namespace strait
