#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.hpp"

namespace strait::copy_engine {

/// The layout of the host memory that the ranks of a host share: counters (words), then `depth` slots with a chunk for
/// each rank. Round k of the communicator uses slot k % depth. All of this should fit, or nearly fit, into the
/// last-level cache. Offsets are in bytes from the start of the memory.
///
/// All words have 32 bits, only grow (and wrap), and continue from operation to operation:
///   uploaded(r)     rounds that rank r has written to its upload slots          written by rank r's upload stream
///   downloaded(r)   rounds from which rank r needs no more data                 written by rank r's download stream
///   begun(r)        number of rounds at the end of rank r's current operation   written by rank r's download stream
struct StagedWindows {
  std::uint32_t ranks = 0;
  std::uint32_t depth = 0;
  std::size_t chunk_bytes = 0;  ///< a multiple of alignment_bytes

  static constexpr std::size_t line_bytes = 128;  ///< words of different writers are on different lines
  static constexpr std::size_t alignment_bytes = 4096;

  /// Offset of a 64-bit hash of the parameters on which the ranks must agree.
  constexpr std::size_t geometry() const { return 0; }
  constexpr std::size_t uploaded(std::uint32_t rank) const { return line_bytes * (1 + rank); }
  constexpr std::size_t downloaded(std::uint32_t rank) const { return line_bytes * (1 + ranks + rank); }
  constexpr std::size_t begun(std::uint32_t rank) const { return line_bytes * (1 + 2 * ranks + rank); }
  constexpr std::size_t words_bytes() const {
    const std::size_t end = line_bytes * (1 + 3 * std::size_t{ranks});
    return (end + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  }
  /// Returns the offset of a rank's chunk in a slot, in which the ranks' chunks are consecutive.
  constexpr std::size_t upload(std::uint32_t slot, std::uint32_t rank) const {
    return words_bytes() + (std::size_t{slot} * ranks + rank) * chunk_bytes;
  }
  constexpr std::size_t size_bytes() const { return words_bytes() + std::size_t{depth} * ranks * chunk_bytes; }

  /// Returns windows with the largest chunks, up to `most_chunk_bytes`, for which `budget_bytes` have room. Fails with
  /// Code::invalid_argument if not even chunks of 64 KB fit, or if the number of ranks or slots is out of range.
  static Result<StagedWindows> within(std::size_t budget_bytes, std::uint32_t ranks, std::uint32_t depth,
                                      std::size_t most_chunk_bytes);
};

}  // namespace strait::copy_engine
