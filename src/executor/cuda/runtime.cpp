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

Status load_kernels(std::span<const void* const> kernels) {
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes;
    STRAIT_TRY(check(cudaFuncGetAttributes(&attributes, kernel), "cannot load a kernel"));
  }
  return {};
}

Status launch_kernel(int device, const void* kernel, const void* argument, const LaunchShape& shape, void* stream) {
  DeviceGuard guard(device);
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.blocks);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.memory_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = shape.overlaps ? 1 : 0;
  void* arguments[] = {const_cast<void*>(argument)};
  return check(cudaLaunchKernelExC(&config, kernel, arguments),
               "cannot launch a kernel on GPU " + std::to_string(device));
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
