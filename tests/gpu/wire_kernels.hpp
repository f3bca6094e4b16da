#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/wire_format.hpp"

/// base/wire_format.hpp on a GPU, one thread per block: for its tests, and so that every build with CUDA compiles it
/// for devices. `format` is not off; all memory is the GPU's. The functions return once the kernel is enqueued on the
/// default stream.
namespace strait::testing {

cudaError_t encode_blocks_on_gpu(WireFormat format, const float* values, std::size_t blocks, std::uint8_t* payload,
                                 float* scales);
cudaError_t decode_blocks_on_gpu(WireFormat format, const std::uint8_t* payload, const float* scales,
                                 std::size_t blocks, float* values);

}  // namespace strait::testing
