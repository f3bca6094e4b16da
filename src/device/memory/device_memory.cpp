#include "device/memory/device_memory.hpp"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/memory/shared_memory.hpp"
#include "executor/cuda/runtime.hpp"

namespace strait {
namespace {

/// The memory that straitMemAllocDevice has given out.
struct DeviceBlocks {
  std::mutex mutex;
  std::map<void*, SharedMemory> all;
};
DeviceBlocks& device_blocks() {
  static auto* const blocks = new DeviceBlocks;  // never destroyed: programs free memory while the process ends
  return *blocks;
}

/// Returns the other GPUs of this process that can access a GPU's memory.
std::vector<int> peers_of(int device, int devices) {
  std::vector<int> peers;
  for (int peer = 0; peer < devices; ++peer) {
    int reaches = 0;
    if (peer == device) continue;
    if (!cuda::check(cudaDeviceCanAccessPeer(&reaches, peer, device), "")) continue;
    if (reaches != 0) peers.push_back(peer);
  }
  return peers;
}

}  // namespace

Result<void*> allocate_device_memory(int device, std::size_t bytes) {
  int devices = 0;
  STRAIT_TRY(cuda::check(cudaGetDeviceCount(&devices), "no GPU can be used"));
  if (device < 0 || device >= devices)
    return fail(Code::invalid_argument, "device " + std::to_string(device) + " was asked for, and this process sees " +
                                            std::to_string(devices));
  if (bytes == 0) return fail(Code::invalid_argument, "memory of 0 bytes was asked for");
  cuda::DeviceGuard guard(device);
  // Creates the device's context for a thread that has used none, even if the device is the current one.
  STRAIT_TRY(cuda::check(cudaSetDevice(device), "GPU " + std::to_string(device) + " cannot be used"));
  // The peers' kernels and copies need this: cudaDeviceEnablePeerAccess() does not give access to such memory.
  const std::vector<int> peers = peers_of(device, devices);
  STRAIT_ASSIGN(auto memory, SharedMemory::allocate_uncleared(device, bytes, peers));
  void* const pointer = memory.data();
  DeviceBlocks& blocks = device_blocks();
  const std::lock_guard lock(blocks.mutex);
  blocks.all.emplace(pointer, std::move(memory));
  return pointer;
}

bool free_device_memory(void* pointer) {
  DeviceBlocks& blocks = device_blocks();
  const std::lock_guard lock(blocks.mutex);
  return blocks.all.erase(pointer) != 0;
}

}  // namespace strait
