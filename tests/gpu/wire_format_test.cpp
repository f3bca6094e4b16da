// Encoding and decoding in the wire formats give the same bits on GPUs as on the host.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "executor/host/quantize.hpp"
#include "gpu/wire_kernels.hpp"
#include "support/wire_reference.hpp"

namespace strait {
namespace {

using testing::Bytes;

struct DeviceDeleter {
  void operator()(std::byte* pointer) const { cudaFree(pointer); }
};
using DeviceBytes = std::unique_ptr<std::byte, DeviceDeleter>;

DeviceBytes on_gpu(const void* data, std::size_t size_bytes) {
  void* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, size_bytes), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(pointer, data, size_bytes, cudaMemcpyHostToDevice), cudaSuccess);
  return DeviceBytes(static_cast<std::byte*>(pointer));
}

/// Returns blocks of every magnitude from subnormals on, of zeros, and with infinities and NaN.
std::vector<float> varied_values() {
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent)
    for (std::size_t i = 0; i < 16 * wire::block_elements; ++i) {
      const auto random = static_cast<std::uint32_t>(mix(i + 100'000 * exponent));
      const std::uint32_t below = std::min(exponent, random >> 24 & 15);
      values.push_back(from_bits<float>((random & 0x807fffffu) | (exponent - below) << 23));
    }
  values.insert(values.end(), wire::block_elements, -0.0F);
  values.insert(values.end(), wire::block_elements, std::numeric_limits<float>::max());
  return values;
}

class WireOnGpu : public ::testing::TestWithParam<WireFormat> {};
INSTANTIATE_TEST_SUITE_P(Format, WireOnGpu, ::testing::Values(WireFormat::int8, WireFormat::fp8, WireFormat::int4),
                         [](const auto& format) { return std::string(name(format.param)); });

TEST_P(WireOnGpu, HasTheBitsOfTheHost) {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here: " << cudaGetErrorString(found);
  const WireFormat format = GetParam();
  const std::vector<float> values = varied_values();
  const std::size_t blocks = wire::blocks_of(values.size());
  Bytes expected(encoded_bytes(format, blocks));
  std::vector<float> expected_values(values.size());
  encode({format, expected.data(), blocks}, DataType::float32, values.data(), values.size());
  decode(DataType::float32, expected_values.data(), values.size(), {format, expected.data(), blocks});

  const DeviceBytes values_on_gpu = on_gpu(values.data(), values.size() * sizeof(float));
  const DeviceBytes run = on_gpu(Bytes(expected.size()).data(), expected.size());
  auto* payload = reinterpret_cast<std::uint8_t*>(run.get());
  auto* scales = reinterpret_cast<float*>(run.get() + blocks * wire::payload_bytes(format));
  auto* in_and_out = reinterpret_cast<float*>(values_on_gpu.get());
  ASSERT_EQ(testing::encode_blocks_on_gpu(format, in_and_out, blocks, payload, scales), cudaSuccess);
  ASSERT_EQ(testing::decode_blocks_on_gpu(format, payload, scales, blocks, in_and_out), cudaSuccess);
  Bytes encoded(expected.size());
  Bytes decoded(values.size() * sizeof(float));
  ASSERT_EQ(cudaMemcpy(encoded.data(), run.get(), encoded.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(decoded.data(), in_and_out, decoded.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(encoded, expected);
  EXPECT_EQ(testing::first_difference(std::as_bytes(std::span(expected_values)), decoded, DataType::float32), "");
}

}  // namespace
}  // namespace strait
