#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

/// The position of a plan's chunks once the element count is known, and how they are cut into slices. Host and GPU
/// executors, the clock and the tests all use this one definition (constexpr functions, so CUDA device code can call
/// them).
namespace strait {

struct Extent {
  std::size_t offset = 0;  ///< elements from the start of the buffer
  std::size_t count = 0;   ///< elements

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// Counts are those of the API: `count` is the number of elements of a block for all-gather, reduce-scatter,
/// all-to-all, gather and scatter, and of the whole buffer for all other collectives.
struct Layout {
  std::size_t block_elements = 0;
  std::size_t chunk_elements = 0;  ///< length of all chunks but the last ones of a block; a multiple of 16 bytes
  std::size_t slice_elements = 0;  ///< length of all slices but the last one of a chunk; a multiple of 16 bytes
  std::uint32_t slices = 0;        ///< number of slices for which every lane runs; 0 for an empty operation
  std::uint32_t chunks_per_block = 1;

  Layout() = default;
  /// `slice_bytes` is rounded down to a multiple of 16 bytes, but to no less than 16 bytes.
  Layout(const RankPlan& plan, std::size_t count, std::size_t element_bytes, std::size_t slice_bytes);

  /// Returns the extent of the whole chunk `chunk` of the input or output.
  constexpr Extent chunk(std::uint32_t chunk) const {
    const std::size_t block = chunk / chunks_per_block;
    const std::size_t begin = std::min(block_elements, chunk % chunks_per_block * chunk_elements);
    const std::size_t end = std::min(block_elements, begin + chunk_elements);
    return {block * block_elements + begin, end - begin};
  }
  /// Returns the extent of slice `slice` of chunk `chunk_index` of the input or output. (A scratch chunk is a single
  /// slice.)
  constexpr Extent slice_of(std::uint32_t chunk_index, std::uint32_t slice) const {
    const Extent whole = chunk(chunk_index);
    const std::size_t begin = std::min(whole.count, slice * slice_elements);
    return {whole.offset + begin, std::min(slice_elements, whole.count - begin)};
  }
};

}  // namespace strait
