// Chunks at unaligned places and of odd lengths, accessed as granules: their values, and that nothing outside of them
// is read or written.
#include "support/emulated_gpu.hpp"
//
#include "kernels/odd_chunk.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "support/random_data.hpp"

namespace strait::kernels {
namespace {

using testing::Bytes;
constexpr std::byte poison{0xa5};
constexpr std::size_t margin = 64, granule_bytes = sizeof(Granule);

/// A chunk of `bytes` bytes that begins `shift` bytes after a multiple of 16.
struct Place {
  Place(std::size_t shift, std::size_t bytes) : memory(bytes + 2 * margin, poison) {
    const std::size_t rest = reinterpret_cast<std::uintptr_t>(memory.data()) % granule_bytes;
    chunk = std::span(memory).subspan(margin - rest + shift, bytes);
  }
  Bytes memory;
  std::span<std::byte> chunk;
};

class OddChunks : public ::testing::TestWithParam<std::size_t> {
 protected:
  static constexpr std::size_t batch = 4;
  ~OddChunks() override { may_load = nullptr; }
  /// Returns lengths from less than a granule to more than a batch of each thread of a warp.
  static std::vector<std::size_t> lengths() {
    std::vector<std::size_t> all;
    for (const std::size_t least : {std::size_t{1}, (batch - 1) * warp_threads * granule_bytes})
      for (std::size_t bytes = least; bytes < least + 100; ++bytes) all.push_back(bytes);
    return all;
  }
  /// Calls `body(segment)` for each thread of a warp.
  template <class Body>
  static void for_threads(std::size_t bytes, Body&& body) {
    const auto end = static_cast<std::uint32_t>((bytes + granule_bytes - 1) / granule_bytes);
    for (std::uint32_t thread = 0; thread < warp_threads; ++thread) {
      threadIdx.x = thread;
      body(Segment{thread, end});
    }
    threadIdx.x = 0;
  }
  static void allow(std::span<const std::byte> all) {
    allowed_ = all;
    may_load = &allowed_;
    loaded_elsewhere = false;
  }
  static inline std::span<const std::byte> allowed_;
};
INSTANTIATE_TEST_SUITE_P(Shifts, OddChunks, ::testing::Range(std::size_t{0}, std::size_t{16}));

TEST_P(OddChunks, AreLoadedAsGranules) {
  for (const std::size_t bytes : lengths()) {
    Place place(GetParam(), bytes);
    const Bytes data = testing::random_elements(DataType::uint8, bytes, bytes);
    std::copy(data.begin(), data.end(), place.chunk.begin());
    const OddChunk chunk(place.chunk.data(), static_cast<std::uint32_t>(bytes));
    allow(place.chunk);
    Bytes loaded(bytes + (batch + 1) * warp_threads * granule_bytes);
    for_threads(bytes, [&](const Segment& segment) {
      Granule values[batch];
      chunk.load(segment, values);
      for (std::size_t b = 0; b < batch; ++b)
        std::memcpy(loaded.data() + (segment.first + b * warp_threads) * granule_bytes, &values[b], granule_bytes);
    });
    EXPECT_TRUE(std::equal(data.begin(), data.end(), loaded.begin())) << bytes;
    EXPECT_FALSE(loaded_elsewhere) << bytes;
  }
}

TEST_P(OddChunks, AreStoredAlone) {
  for (const std::size_t bytes : lengths()) {
    Place place(GetParam(), bytes);
    const Bytes data = testing::random_elements(DataType::uint8, bytes, bytes);
    const OddChunk chunk(place.chunk.data(), static_cast<std::uint32_t>(bytes));
    Bytes padded = data;
    padded.resize(bytes + (batch + 1) * warp_threads * granule_bytes);
    for_threads(bytes, [&](const Segment& segment) {
      Granule values[batch];
      for (std::size_t b = 0; b < batch; ++b)
        std::memcpy(&values[b], padded.data() + (segment.first + b * warp_threads) * granule_bytes, granule_bytes);
      chunk.store(segment, values);
    });
    EXPECT_TRUE(std::equal(data.begin(), data.end(), place.chunk.begin())) << bytes;
    std::fill(place.chunk.begin(), place.chunk.end(), poison);
    EXPECT_EQ(std::count(place.memory.begin(), place.memory.end(), poison), std::ssize(place.memory)) << bytes;
  }
}

/// Copies between places of all alignments.
TEST_P(OddChunks, AreCopied) {
  for (std::size_t to_shift = 0; to_shift < granule_bytes; ++to_shift)
    for (std::size_t bytes = 1; bytes < 100; bytes += 3) {
      Place from(GetParam(), bytes), to(to_shift, bytes);
      const Bytes data = testing::random_elements(DataType::uint8, bytes, bytes);
      std::copy(data.begin(), data.end(), from.chunk.begin());
      allow(from.chunk);
      for_threads(bytes, [&](const Segment&) {
        copy_by_warp(from.chunk.data(), to.chunk.data(), static_cast<std::uint32_t>(bytes));
      });
      EXPECT_TRUE(std::equal(data.begin(), data.end(), to.chunk.begin())) << bytes << " to " << to_shift;
      EXPECT_FALSE(loaded_elsewhere) << bytes << " to " << to_shift;
      std::fill(to.chunk.begin(), to.chunk.end(), poison);
      EXPECT_EQ(std::count(to.memory.begin(), to.memory.end(), poison), std::ssize(to.memory)) << bytes;
    }
}

}  // namespace
}  // namespace strait::kernels
