#include <cuda_runtime_api.h>

#include "kernels/kernels.hpp"
#include "kernels/probe.cuh"

/// Tests whether memory that the driver has mapped for peers really carries bytes in both directions, between kernels
/// that run at the same time. On machines with a misconfigured IOMMU or ACS, P2P is granted but moves nothing, or
/// something else.
namespace strait::kernels {
namespace {

/// Runs with one warp, one thread for each peer.
__global__ void probe(const __grid_constant__ Ring ring, std::uint32_t attempt) {
  const std::uint32_t unreached = __ballot_sync(0xffffffffu, !reaches(ring, attempt, threadIdx.x));
  if (threadIdx.x == 0) *static_cast<volatile std::uint32_t*>(&ring.mailbox->unreached) = unreached;
}

}  // namespace

cudaError_t launch_probe(Ring ring, std::uint32_t attempt, cudaStream_t stream) {
  ring.timeout_ns = probe_timeout_ms * 1'000'000;
  ring.slow_ns = never_slow_ns;
  void* arguments[] = {&ring, &attempt};
  // The result is that of this launch. It does not report an error that the program has left behind.
  return cudaLaunchKernel(reinterpret_cast<const void*>(&probe), 1, warp_threads, arguments, 0, stream);
}

}  // namespace strait::kernels
