#include "device/memory/shared_memory.hpp"

#include <utility>
#include <vector>

#include "executor/cuda/runtime.hpp"

namespace strait {

using cuda::AddressRange;
using cuda::Allocation;

Result<SharedMemory> SharedMemory::allocate_uncleared(int device, std::size_t bytes, std::span<const int> peers) {
  STRAIT_ASSIGN(auto allocation, Allocation::create(device, bytes, true));
  return map(std::move(allocation), bytes, device, peers);
}

Result<SharedMemory> SharedMemory::allocate(int device, std::size_t bytes) {
  STRAIT_ASSIGN(SharedMemory memory, allocate_uncleared(device, bytes));
  STRAIT_TRY(cuda::clear(device, memory.data(), bytes));
  return memory;
}

Result<SharedMemory> SharedMemory::import(int fd, std::size_t bytes, int device) {
  STRAIT_ASSIGN(auto allocation, Allocation::import(fd));
  return map(std::move(allocation), bytes, device, {});
}

Result<SharedMemory> SharedMemory::map(Allocation allocation, std::size_t bytes, int device,
                                       std::span<const int> peers) {
  SharedMemory memory;
  memory.allocation_ = std::move(allocation);
  STRAIT_ASSIGN(const std::size_t whole_bytes, Allocation::rounded(device, bytes, true));
  std::vector<int> devices{device};
  devices.insert(devices.end(), peers.begin(), peers.end());
  STRAIT_ASSIGN(memory.range_, AddressRange::map({&memory.allocation_, 1}, {&whole_bytes, 1}, devices));
  return memory;
}

}  // namespace strait
