#pragma once

#include <vector>

#include "executor/host/quantize.hpp"
#include "gpu/device_side.hpp"
#include "support/random_data.hpp"
#include "support/wire_reference.hpp"

namespace strait::testing {

/// Checks that an all-reduce of `count` floats leaves in the residual what the format lost, as the host's encoder does.
/// For communicators in which each rank's own elements are encoded.
inline void check_residual(straitComm_t comm, int rank, int ranks, std::size_t count) {
  const DeviceSide side(0);
  CollectiveCase c;
  c.count = count;
  c.wire = WireFormat::int4;
  const Bytes input = random_input(c, static_cast<std::uint32_t>(ranks), static_cast<std::uint32_t>(rank));
  std::vector<float> expected(count, 0), got(count);
  Bytes run(encoded_bytes(c.wire, wire::blocks_of(count)));
  float *data = nullptr, *residual = nullptr;
  STRAIT_EXPECT_CUDA(cudaMalloc(&data, input.size()));
  STRAIT_EXPECT_CUDA(cudaMalloc(&residual, input.size()));
  STRAIT_EXPECT_CUDA(cudaMemsetAsync(residual, 0, input.size(), side.stream()));
  meet_on_host();
  for (int step = 0; step < 3; ++step) {
    STRAIT_EXPECT_CUDA(cudaMemcpyAsync(data, input.data(), input.size(), cudaMemcpyHostToDevice, side.stream()));
    STRAIT_EXPECT_OK(call_with_options(c, data, data, straitSum, comm, side.stream(), residual));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
    if (ranks > 1) encode({c.wire, run.data(), wire::blocks_of(count)}, c.type, input.data(), count, expected.data());
    STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), residual, input.size(), cudaMemcpyDeviceToHost));
    EXPECT_EQ(first_difference(std::as_bytes(std::span(expected)), std::as_bytes(std::span(got)), c.type), "");
  }
  meet_on_host();
  cudaFree(data);
  cudaFree(residual);
}

}  // namespace strait::testing
