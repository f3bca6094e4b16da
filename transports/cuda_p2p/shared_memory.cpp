#include "transports/cuda_p2p/shared_memory.hpp"

#include <cuda_runtime_api.h>
#include <fcntl.h>

#include <string>

namespace strait::cuda_p2p {

using cuda::Driver;

CUmemAllocationProp SharedMemory::properties(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

Result<std::size_t> SharedMemory::rounded(const Driver& driver, int device, std::size_t bytes) {
  const CUmemAllocationProp wanted = properties(device);
  std::size_t granularity = 0;
  STRAIT_TRY(
      driver.check(driver.get_allocation_granularity(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                   "device " + std::to_string(device) + " cannot share memory"));
  return (bytes + granularity - 1) / granularity * granularity;
}

Result<SharedMemory> SharedMemory::allocate_uncleared(int device, std::size_t bytes) {
  SharedMemory memory;
  STRAIT_ASSIGN(memory.driver_, Driver::instance());
  STRAIT_ASSIGN(memory.bytes_, rounded(*memory.driver_, device, bytes));
  const CUmemAllocationProp wanted = properties(device);
  STRAIT_TRY(memory.driver_->check(
      memory.driver_->create(&memory.handle_, memory.bytes_, &wanted, 0),
      "no " + std::to_string(memory.bytes_ >> 20) + " MB of memory on device " + std::to_string(device)));
  memory.created_ = true;
  STRAIT_TRY(memory.map(*memory.driver_, device));
  return memory;
}

Result<SharedMemory> SharedMemory::allocate(int device, std::size_t bytes) {
  STRAIT_ASSIGN(SharedMemory memory, allocate_uncleared(device, bytes));
  if (const cudaError_t result = cudaMemset(memory.data(), 0, memory.bytes_); result != cudaSuccess)
    return fail(Code::cuda_error, std::string("cannot clear the memory for peers: ") + cudaGetErrorString(result));
  // On the default stream the memset may still run when it returns.
  if (const cudaError_t result = cudaStreamSynchronize(nullptr); result != cudaSuccess)
    return fail(Code::cuda_error, std::string("cannot clear the memory for peers: ") + cudaGetErrorString(result));
  return memory;
}

Result<SharedMemory> SharedMemory::import(int fd, std::size_t bytes, int device) {
  SharedMemory memory;
  STRAIT_ASSIGN(memory.driver_, Driver::instance());
  STRAIT_ASSIGN(memory.bytes_, rounded(*memory.driver_, device, bytes));
  // The driver takes the descriptor as the value of the pointer.
  auto* shared = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd));
  STRAIT_TRY(memory.driver_->check(
      memory.driver_->import_handle(&memory.handle_, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "cannot take a peer's memory over"));
  memory.created_ = true;
  STRAIT_TRY(memory.map(*memory.driver_, device));
  return memory;
}

Status SharedMemory::map(const Driver& driver, int device) {
  STRAIT_TRY(driver.check(driver.reserve(&address_, bytes_, 0, 0, 0), "no addresses for a peer's memory"));
  STRAIT_TRY(driver.check(driver.map(address_, bytes_, 0, handle_, 0), "cannot map a peer's memory"));
  mapped_ = true;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver.check(driver.set_access(address_, bytes_, &access, 1),
                      "device " + std::to_string(device) +
                          " cannot reach the memory of a peer directly (no P2P; `strait topo` gives the reason)");
}

Result<UniqueFd> SharedMemory::share() const {
  int fd = -1;
  STRAIT_TRY(driver_->check(driver_->export_handle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                            "cannot share device memory"));
  UniqueFd shared(fd);
  fcntl(shared.get(), F_SETFD, FD_CLOEXEC);
  return shared;
}

SharedMemory::~SharedMemory() {
  if (mapped_) driver_->unmap(address_, bytes_);
  if (address_ != 0) driver_->free_address(address_, bytes_);
  if (created_) driver_->release(handle_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : driver_(other.driver_),
      handle_(other.handle_),
      address_(std::exchange(other.address_, 0)),
      bytes_(other.bytes_),
      created_(std::exchange(other.created_, false)),
      mapped_(std::exchange(other.mapped_, false)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  SharedMemory old(std::move(other));
  std::swap(driver_, old.driver_);
  std::swap(handle_, old.handle_);
  std::swap(address_, old.address_);
  std::swap(bytes_, old.bytes_);
  std::swap(created_, old.created_);
  std::swap(mapped_, old.mapped_);
  return *this;
}

}  // namespace strait::cuda_p2p
