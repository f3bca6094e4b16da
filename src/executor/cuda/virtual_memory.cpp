#include "executor/cuda/virtual_memory.hpp"

#include <fcntl.h>

#include <cstdint>
#include <numeric>
#include <string>

namespace strait::cuda {
namespace {

CUmemAllocationProp properties(int device, bool can_be_shared) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  if (can_be_shared) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

}  // namespace

Result<std::size_t> Allocation::rounded(int device, std::size_t bytes, bool can_be_shared) {
  STRAIT_ASSIGN(const Driver* const driver, Driver::instance());
  const CUmemAllocationProp wanted = properties(device, can_be_shared);
  std::size_t granularity = 0;
  STRAIT_TRY(
      driver->check(driver->get_allocation_granularity(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                    "device " + std::to_string(device) + " has no memory of this kind"));
  return (bytes + granularity - 1) / granularity * granularity;
}

Result<Allocation> Allocation::create(int device, std::size_t bytes, bool can_be_shared) {
  STRAIT_ASSIGN(const Driver* const driver, Driver::instance());
  STRAIT_ASSIGN(const std::size_t whole_bytes, rounded(device, bytes, can_be_shared));
  const CUmemAllocationProp wanted = properties(device, can_be_shared);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult created = driver->create(&handle, whole_bytes, &wanted, 0);
  const Status checked = driver->check(
      created, "no " + std::to_string(whole_bytes >> 20) + " MB of memory on device " + std::to_string(device));
  if (!checked && created == CUDA_ERROR_OUT_OF_MEMORY) return fail(Code::out_of_memory, checked.error().message);
  STRAIT_TRY(checked);
  return Allocation(*driver, handle);
}

Result<Allocation> Allocation::import(int fd) {
  STRAIT_ASSIGN(const Driver* const driver, Driver::instance());
  // The driver takes the descriptor in place of a pointer.
  auto* shared = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd));
  CUmemGenericAllocationHandle handle = 0;
  STRAIT_TRY(driver->check(driver->import_handle(&handle, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                           "cannot take a peer's memory over"));
  return Allocation(*driver, handle);
}

Allocation::~Allocation() {
  if (driver_ != nullptr) driver_->release(handle_);
}

Result<UniqueFd> Allocation::share() const {
  int fd = -1;
  STRAIT_TRY(driver_->check(driver_->export_handle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                            "cannot share device memory"));
  UniqueFd shared(fd);
  fcntl(shared.get(), F_SETFD, FD_CLOEXEC);
  return shared;
}

Result<AddressRange> AddressRange::map(std::span<const Allocation> allocations,
                                       std::span<const std::size_t> sizes_bytes, std::span<const int> devices) {
  AddressRange range;
  STRAIT_ASSIGN(range.driver_, Driver::instance());
  const Driver& driver = *range.driver_;
  range.bytes_ = std::accumulate(sizes_bytes.begin(), sizes_bytes.end(), std::size_t{0});
  STRAIT_TRY(driver.check(driver.reserve(&range.address_, range.bytes_, 0, 0, 0), "no addresses for device memory"));
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    STRAIT_TRY(
        driver.check(driver.map(range.address_ + range.mapped_bytes_, sizes_bytes[i], 0, allocations[i].handle(), 0),
                     "cannot map device memory"));
    range.mapped_bytes_ += sizes_bytes[i];
  }
  for (const int device : devices) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    STRAIT_TRY(
        driver.check(driver.set_access(range.address_, range.bytes_, &access, 1),
                     "device " + std::to_string(device) +
                         " cannot reach this memory directly (if a peer's: no P2P; `strait topo` gives the reason)"));
  }
  return range;
}

AddressRange::~AddressRange() {
  if (mapped_bytes_ != 0) driver_->unmap(address_, mapped_bytes_);
  if (address_ != 0) driver_->free_address(address_, bytes_);
}

}  // namespace strait::cuda
