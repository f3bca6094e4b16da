#include "gpu/wire_kernels.hpp"

namespace strait::testing {
namespace {

constexpr unsigned threads = 128;

template <WireFormat format>
__global__ void encode_blocks(const float* values, std::size_t blocks, std::uint8_t* payload, float* scales) {
  const std::size_t block = blockIdx.x * std::size_t{threads} + threadIdx.x;
  if (block >= blocks) return;
  wire::encode_block<format>(values + block * wire::block_elements, payload + block * wire::payload_bytes(format),
                             scales + block);
}

template <WireFormat format>
__global__ void decode_blocks(const std::uint8_t* payload, const float* scales, std::size_t blocks, float* values) {
  const std::size_t block = blockIdx.x * std::size_t{threads} + threadIdx.x;
  if (block >= blocks) return;
  wire::decode_block<format>(payload + block * wire::payload_bytes(format), scales[block],
                             values + block * wire::block_elements);
}

unsigned grid(std::size_t blocks) { return static_cast<unsigned>((blocks + threads - 1) / threads); }

}  // namespace

cudaError_t encode_blocks_on_gpu(WireFormat format, const float* values, std::size_t blocks, std::uint8_t* payload,
                                 float* scales) {
  if (format == WireFormat::int8)
    encode_blocks<WireFormat::int8><<<grid(blocks), threads>>>(values, blocks, payload, scales);
  else if (format == WireFormat::fp8)
    encode_blocks<WireFormat::fp8><<<grid(blocks), threads>>>(values, blocks, payload, scales);
  else
    encode_blocks<WireFormat::int4><<<grid(blocks), threads>>>(values, blocks, payload, scales);
  return cudaGetLastError();
}

cudaError_t decode_blocks_on_gpu(WireFormat format, const std::uint8_t* payload, const float* scales,
                                 std::size_t blocks, float* values) {
  if (format == WireFormat::int8)
    decode_blocks<WireFormat::int8><<<grid(blocks), threads>>>(payload, scales, blocks, values);
  else if (format == WireFormat::fp8)
    decode_blocks<WireFormat::fp8><<<grid(blocks), threads>>>(payload, scales, blocks, values);
  else
    decode_blocks<WireFormat::int4><<<grid(blocks), threads>>>(payload, scales, blocks, values);
  return cudaGetLastError();
}

}  // namespace strait::testing
