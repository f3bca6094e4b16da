#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.hpp"

namespace strait::copy_engine {

/// Where everything lies in the host memory that the ranks of a host share: words that count, then `depth` slots (a
/// chunk a rank). Round k of all uses slot k % depth. The whole should fit into the last-level cache or not be far from
/// it. Offsets are in bytes from the start of the memory.
///
/// All words are 32 bits that only grow (cyclically) and go on from operation to operation:
///   uploaded(r)     rounds that rank r has written to its upload slots          written by rank r's upload stream
///   downloaded(r)   rounds that rank r needs nothing of any more                written by rank r's download stream
///   begun(r)        rounds up to the end of the operation that rank r is at      written by rank r's download stream
struct StagedWindows {
  std::uint32_t ranks = 0;
  std::uint32_t depth = 0;
  std::size_t chunk_bytes = 0;  ///< a multiple of alignment_bytes

  static constexpr std::size_t line_bytes = 128;  ///< words of different writers do not share one
  static constexpr std::size_t alignment_bytes = 4096;

  constexpr std::size_t geometry() const { return 0; }  ///< 64 bits: what the ranks must agree on
  constexpr std::size_t uploaded(std::uint32_t rank) const { return line_bytes * (1 + rank); }
  constexpr std::size_t downloaded(std::uint32_t rank) const { return line_bytes * (1 + ranks + rank); }
  constexpr std::size_t begun(std::uint32_t rank) const { return line_bytes * (1 + 2 * ranks + rank); }
  constexpr std::size_t words_bytes() const {
    const std::size_t end = line_bytes * (1 + 3 * std::size_t{ranks});
    return (end + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  }
  /// The ranks' chunks of one slot lie one behind the other.
  constexpr std::size_t upload(std::uint32_t slot, std::uint32_t rank) const {
    return words_bytes() + (std::size_t{slot} * ranks + rank) * chunk_bytes;
  }
  constexpr std::size_t size_bytes() const { return words_bytes() + std::size_t{depth} * ranks * chunk_bytes; }

  /// The largest chunks, up to `most_chunk_bytes`, that `depth` slots of `ranks` ranks leave room for in
  /// `budget_bytes`. Code::invalid_argument where not even chunks of 64 KB would fit, or there are no ranks or slots.
  static Result<StagedWindows> within(std::size_t budget_bytes, std::uint32_t ranks, std::uint32_t depth,
                                      std::size_t most_chunk_bytes);
};

}  // namespace strait::copy_engine
