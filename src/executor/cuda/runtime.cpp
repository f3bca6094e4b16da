#include "executor/cuda/runtime.hpp"

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace strait::cuda {

Status check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return {};
  cudaGetLastError();
  const Code code = result == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::cuda_error;
  return fail(code, std::string(what) + ": " + cudaGetErrorString(result));
}

namespace {

/// Released blocks of MappedMemory, by size.
struct MappedBlocks {
  std::mutex mutex;
  std::unordered_map<std::size_t, std::vector<void*>> free;

  static MappedBlocks& of_process() {
    // Never destroyed: communicators may be destroyed while the process exits.
    static auto* const blocks = new MappedBlocks;
    return *blocks;
  }
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex);
    std::vector<void*>& some = free[bytes];
    while (!some.empty()) {
      void* const block = some.back();
      some.pop_back();
      cudaPointerAttributes attributes{};  // if the device was reset, the block is no longer known to it
      if (cudaPointerGetAttributes(&attributes, block) == cudaSuccess && attributes.type == cudaMemoryTypeHost)
        return block;
      cudaGetLastError();
    }
    return nullptr;
  }
  void give_back(std::size_t bytes, void* block) {
    const std::lock_guard lock(mutex);
    free[bytes].push_back(block);
  }
};

}  // namespace

Status clear(int device, void* memory, std::size_t size_bytes) {
  const DeviceGuard guard(device);
  const RelaxedCapture relaxed;
  const std::string what = "cannot clear " + std::to_string(size_bytes) + " bytes on GPU " + std::to_string(device);
  cudaStream_t stream = nullptr;
  STRAIT_TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), what));
  Status cleared = check(cudaMemsetAsync(memory, 0, size_bytes, stream), what);
  if (cleared) cleared = check(cudaStreamSynchronize(stream), what);
  cudaStreamDestroy(stream);
  return cleared;
}

Result<DeviceMemory> DeviceMemory::allocate_uncleared(int device, std::size_t size_bytes, std::span<const int> peers) {
  const DeviceGuard guard(device);
  DeviceMemory memory;
  if (auto whole_bytes = Allocation::rounded(device, size_bytes, false)) {
    STRAIT_ASSIGN(memory.allocation_, Allocation::create(device, size_bytes, false));
    std::vector<int> devices(peers.begin(), peers.end());
    devices.push_back(device);
    STRAIT_ASSIGN(memory.range_, AddressRange::map({&memory.allocation_, 1}, {&*whole_bytes, 1}, devices));
    return memory;
  }
  const std::string what = std::to_string(size_bytes) + " bytes on GPU " + std::to_string(device);
  STRAIT_TRY(check(cudaMalloc(&memory.plain_, size_bytes), "cannot allocate " + what));
  return memory;
}

Result<DeviceMemory> DeviceMemory::allocate(int device, std::size_t size_bytes, std::span<const int> peers) {
  STRAIT_ASSIGN(DeviceMemory memory, allocate_uncleared(device, size_bytes, peers));
  STRAIT_TRY(clear(device, memory.data(), size_bytes));
  return memory;
}

Result<MappedMemory> MappedMemory::allocate(std::size_t size_bytes) {
  constexpr std::size_t page_bytes = 4096;
  MappedMemory memory;
  memory.bytes_ = (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
  memory.data_ = MappedBlocks::of_process().take(memory.bytes_);
  if (memory.data_ == nullptr)
    STRAIT_TRY(check(cudaHostAlloc(&memory.data_, memory.bytes_, cudaHostAllocPortable | cudaHostAllocMapped),
                     "cannot allocate " + std::to_string(memory.bytes_) + " bytes of mapped host memory"));
  std::memset(memory.data_, 0, memory.bytes_);
  return memory;
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) MappedBlocks::of_process().give_back(bytes_, data_);
}

Status load_kernels(std::span<const void* const> kernels) {
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes;
    STRAIT_TRY(check(cudaFuncGetAttributes(&attributes, kernel), "cannot load a kernel"));
  }
  return {};
}

Result<int> compiled_for(const void* kernel) {
  cudaFuncAttributes attributes;
  STRAIT_TRY(check(cudaFuncGetAttributes(&attributes, kernel), "cannot load a kernel"));
  return attributes.ptxVersion;
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
