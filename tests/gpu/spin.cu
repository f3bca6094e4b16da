#include "gpu/spin.hpp"
#include "kernels/primitives.cuh"

namespace strait::testing {
namespace {

__global__ void spin(const volatile std::uint32_t* stop, std::uint64_t most_ns) {
  const std::uint64_t began_ns = kernels::device_now_ns();
  while (*stop == 0 && kernels::device_now_ns() - began_ns < most_ns) continue;
}

}  // namespace

cudaError_t launch_spin(const std::uint32_t* stop, std::uint32_t most_ms, cudaStream_t stream) {
  spin<<<1, 1, 0, stream>>>(stop, std::uint64_t{most_ms} * 1'000'000);
  return cudaGetLastError();
}

}  // namespace strait::testing
