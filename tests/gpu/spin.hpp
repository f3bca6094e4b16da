#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace strait::testing {

/// Launches a kernel that runs until `*stop`, in pinned host memory, is not 0, but for `most_ms` at most.
cudaError_t launch_spin(const std::uint32_t* stop, std::uint32_t most_ms, cudaStream_t stream);

}  // namespace strait::testing
