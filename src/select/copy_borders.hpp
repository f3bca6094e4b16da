#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

namespace strait {

/// The sizes in bytes of the larger buffer from which on copy engines carry a call; 0: never.
struct CopyBorders {
  /// All-reduce and reduce; a reduce has as many steps as an all-reduce and moves no more bytes.
  std::size_t sums_bytes = 0;
  std::size_t scattered_bytes = 0;  ///< reduce-scatter
  std::size_t others_bytes = 0;     ///< all other collectives
  std::size_t messages_bytes = 0;   ///< sends and receives; the size is that of the message

  static constexpr CopyBorders all_from(std::size_t bytes) { return {bytes, bytes, bytes, bytes}; }
  constexpr std::size_t of(Collective collective) const {
    if (collective == Collective::all_reduce || collective == Collective::reduce) return sums_bytes;
    if (collective == Collective::send_recv) return messages_bytes;
    return collective == Collective::reduce_scatter ? scattered_bytes : others_bytes;
  }
};
/// Returns the borders of GPUs with P2P, for calls limited to `max_sms` thread blocks (0: no limit; `no_sms`: none).
/// Kernels with few thread blocks move less than copy engines do; the sizes from which this holds were measured on two
/// and four H200. With `no_sms`, everything that needs no SM goes by copy engines from the first byte on. Messages go
/// by copy engines only if this is asked for: on streams that share a hardware queue, a rank that posts messages one by
/// one while its peer posts them as a group could wait forever.
CopyBorders copy_borders_of(std::uint32_t max_sms);

}  // namespace strait
