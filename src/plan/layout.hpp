#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

/// Where the chunks of a plan lie once the element count is known, and how they are cut into slices. Host and GPU
/// executors, the clock and the tests share this one statement of it (constexpr: CUDA device code calls it too).
namespace strait {

struct Extent {
  std::size_t offset = 0;  ///< elements from the start of the buffer
  std::size_t count = 0;   ///< elements

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// `count` as the API counts: elements of a block (all-gather, reduce-scatter, all-to-all, gather, scatter), of the
/// whole buffer elsewhere.
struct Layout {
  std::size_t block_elements = 0;
  std::size_t chunk_elements = 0;  ///< of every chunk but the last ones of a block; a multiple of 16 bytes
  std::size_t slice_elements = 0;  ///< of every slice but the last of a chunk; a multiple of 16 bytes
  std::uint32_t slices = 0;        ///< how often every lane runs; 0 for an empty operation
  std::uint32_t chunks_per_block = 1;

  Layout() = default;
  /// `slice_bytes` is rounded down to a multiple of 16 elements' bytes, but never below.
  Layout(const RankPlan& plan, std::size_t count, std::size_t element_bytes, std::size_t slice_bytes);

  /// All of chunk `chunk` of the input or output.
  constexpr Extent chunk(std::uint32_t chunk) const {
    const std::size_t block = chunk / chunks_per_block;
    const std::size_t begin = std::min(block_elements, chunk % chunks_per_block * chunk_elements);
    const std::size_t end = std::min(block_elements, begin + chunk_elements);
    return {block * block_elements + begin, end - begin};
  }
  /// Slice `slice` of chunk `chunk_index` of the input or output (not scratch, whose chunks are one slice each).
  constexpr Extent slice_of(std::uint32_t chunk_index, std::uint32_t slice) const {
    const Extent whole = chunk(chunk_index);
    const std::size_t begin = std::min(whole.count, slice * slice_elements);
    return {whole.offset + begin, std::min(slice_elements, whole.count - begin)};
  }
};

}  // namespace strait
