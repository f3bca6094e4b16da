#include "executor/cuda/runtime.hpp"

#include <cstring>

namespace strait::cuda {

Status check(cudaError_t result, const std::string& what) {
  if (result == cudaSuccess) return {};
  cudaGetLastError();
  const Code code = result == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::cuda_error;
  return fail(code, what + ": " + cudaGetErrorString(result));
}

Result<DeviceMemory> DeviceMemory::allocate_uncleared(int device, std::size_t size_bytes) {
  DeviceGuard guard(device);
  DeviceMemory memory;
  const std::string what = std::to_string(size_bytes) + " bytes on GPU " + std::to_string(device);
  STRAIT_TRY(check(cudaMalloc(&memory.data_, size_bytes), "cannot allocate " + what));
  return memory;
}

Result<DeviceMemory> DeviceMemory::allocate(int device, std::size_t size_bytes) {
  DeviceGuard guard(device);
  STRAIT_ASSIGN(DeviceMemory memory, allocate_uncleared(device, size_bytes));
  const std::string what = std::to_string(size_bytes) + " bytes on GPU " + std::to_string(device);
  STRAIT_TRY(check(cudaMemset(memory.data_, 0, size_bytes), "cannot clear " + what));
  STRAIT_TRY(check(cudaDeviceSynchronize(), "cannot clear " + what));
  return memory;
}

Result<MappedMemory> MappedMemory::allocate(std::size_t size_bytes) {
  MappedMemory memory;
  STRAIT_TRY(check(cudaHostAlloc(&memory.data_, size_bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                   "cannot allocate " + std::to_string(size_bytes) + " bytes of mapped host memory"));
  std::memset(memory.data_, 0, size_bytes);
  return memory;
}

Status enable_peer_access(std::span<const int> devices) {
  for (const int device : devices)
    for (const int peer : devices) {
      if (device == peer) continue;
      int can_access = 0;
      const std::string pair =
          "GPU " + std::to_string(device) + " cannot reach the memory of GPU " + std::to_string(peer);
      STRAIT_TRY(check(cudaDeviceCanAccessPeer(&can_access, device, peer), pair));
      if (!can_access) return fail(Code::unsupported, pair + ": the driver offers no peer access between them");
      DeviceGuard guard(device);
      const cudaError_t result = cudaDeviceEnablePeerAccess(peer, 0);
      if (result == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
      } else {
        STRAIT_TRY(check(result, pair));
      }
    }
  return {};
}

}  // namespace strait::cuda
