#include <gtest/gtest.h>

#include <algorithm>

#include "executor/host/reduce.hpp"
#include "support/random_data.hpp"

namespace strait {
namespace {

using testing::Bytes;

class Copy : public ::testing::TestWithParam<Simd> {
 protected:
  void SetUp() override {
    if (GetParam() > best_simd()) GTEST_SKIP() << "this processor has no " << name(GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(Simd, Copy, ::testing::Values(Simd::portable, Simd::avx2, Simd::avx512),
                         [](const auto& simd) { return std::string(name(simd.param)); });

TEST_P(Copy, EverySizeAndAlignmentToSeveralDestinations) {
  constexpr std::size_t guard_bytes = 96;
  constexpr std::byte guard{0xa5};
  for (const std::size_t size_bytes : {0, 1, 15, 63, 64, 65, 1000, 4095, 4096, 4097, 12345}) {
    for (std::size_t offset = 0; offset < 70; offset += 23) {
      const Bytes source = testing::random_elements(DataType::uint8, size_bytes + offset, size_bytes);
      const std::byte* from = source.data() + offset;
      for (std::size_t destination_count = 1; destination_count <= 4; ++destination_count) {
        std::vector<Bytes> buffers(destination_count, Bytes(guard_bytes + size_bytes + guard_bytes, guard));
        std::vector<ReduceDestination> destinations;
        for (std::size_t d = 0; d < destination_count; ++d)
          destinations.push_back({.pointer = buffers[d].data() + offset + d, .streaming = d % 2 == 0});
        copy(destinations, from, size_bytes, GetParam());
        for (std::size_t d = 0; d < destination_count; ++d) {
          Bytes expected(buffers[d].size(), guard);
          std::copy_n(from, size_bytes, expected.data() + offset + d);
          ASSERT_EQ(buffers[d], expected) << size_bytes << " bytes from offset " << offset << ", destination " << d;
        }
      }
    }
  }
}

TEST_P(Copy, OntoItself) {
  const Bytes original = testing::random_elements(DataType::uint8, 10000, 1);
  Bytes buffer = original, other(10000);
  const ReduceDestination destinations[] = {{.pointer = buffer.data(), .streaming = true}, {.pointer = other.data()}};
  copy(destinations, buffer.data(), buffer.size(), GetParam());
  EXPECT_EQ(buffer, original);
  EXPECT_EQ(other, original);
}

}  // namespace
}  // namespace strait
