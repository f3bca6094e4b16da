#include "transports/cuda_p2p/user_memory.hpp"

#include <fcntl.h>

#include <numeric>
#include <string>
#include <utility>

namespace strait::cuda_p2p {
namespace {

using cuda::Driver;

/// The allocation that is mapped at an address; an error where there is none of this interface.
Result<Allocation> allocation_at(const Driver& driver, CUdeviceptr address) {
  CUmemGenericAllocationHandle handle = 0;
  STRAIT_TRY(driver.check(driver.retain_handle(&handle, reinterpret_cast<void*>(address)),
                          "this memory has no allocation of the driver's virtual memory interface"));
  return Allocation(driver, handle);
}

Status check_can_be_shared(const Driver& driver, const Allocation& allocation, int device) {
  CUmemAllocationProp properties{};
  STRAIT_TRY(driver.check(driver.get_properties(&properties, allocation.handle()), "cannot ask what this memory is"));
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties.location.id != device)
    return fail(Code::invalid_argument, "it is not memory of device " + std::to_string(device) + ", this rank's");
  if ((properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0)
    return fail(Code::invalid_argument, "it was allocated without a handle type by which it could be shared");
  return {};
}

}  // namespace

Allocation::~Allocation() {
  if (driver_ != nullptr) driver_->release(handle_);
}
Allocation::Allocation(Allocation&& other) noexcept
    : driver_(std::exchange(other.driver_, nullptr)), handle_(other.handle_) {}
Allocation& Allocation::operator=(Allocation&& other) noexcept {
  Allocation old(std::move(other));
  std::swap(driver_, old.driver_);
  std::swap(handle_, old.handle_);
  return *this;
}

Result<UserMemory> UserMemory::find(const void* pointer, std::size_t bytes, int device) {
  constexpr const char* remedy =
      ". Memory that peers are to reach comes from straitMemAllocDevice or ncclMemAlloc (PyTorch: a MemPool of it), or "
      "from cuMemCreate with POSIX file descriptors";
  UserMemory memory;
  STRAIT_ASSIGN(memory.driver_, Driver::instance());
  const Driver& driver = *memory.driver_;
  const auto begin = reinterpret_cast<CUdeviceptr>(pointer), end = begin + bytes;
  for (CUdeviceptr at = begin; at < end;) {
    Part part{};
    auto found = allocation_at(driver, at);
    if (!found) return fail(Code::invalid_argument, found.error().message + remedy);
    part.allocation = std::move(*found);
    if (const Status shared = check_can_be_shared(driver, part.allocation, device); !shared)
      return fail(shared.error().code, shared.error().message + remedy);
    STRAIT_TRY(
        driver.check(driver.get_address_range(&part.address, &part.bytes, at), "cannot ask where memory begins"));
    if (memory.parts_.empty()) memory.offset_ = at - part.address;
    at = part.address + part.bytes;
    memory.parts_.push_back(std::move(part));
  }
  return memory;
}

std::vector<std::size_t> UserMemory::sizes_bytes() const {
  std::vector<std::size_t> sizes;
  for (const Part& part : parts_) sizes.push_back(part.bytes);
  return sizes;
}

Result<UniqueFd> UserMemory::share(std::size_t number) const {
  int fd = -1;
  STRAIT_TRY(driver_->check(
      driver_->export_handle(&fd, parts_.at(number).allocation.handle(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cannot share device memory"));
  UniqueFd shared(fd);
  fcntl(shared.get(), F_SETFD, FD_CLOEXEC);
  return shared;
}

bool UserMemory::is_still_there() const {
  for (const Part& part : parts_) {
    const auto now = allocation_at(*driver_, part.address);
    if (!now || now->handle() != part.allocation.handle()) return false;
  }
  return true;
}

Result<PeerMemory> PeerMemory::import(std::span<const UniqueFd> shared, std::span<const std::size_t> sizes_bytes,
                                      int device) {
  PeerMemory memory;
  STRAIT_ASSIGN(memory.driver_, Driver::instance());
  const Driver& driver = *memory.driver_;
  memory.bytes_ = std::accumulate(sizes_bytes.begin(), sizes_bytes.end(), std::size_t{0});
  STRAIT_TRY(
      driver.check(driver.reserve(&memory.address_, memory.bytes_, 0, 0, 0), "no addresses for a peer's memory"));
  for (std::size_t i = 0; i < shared.size(); ++i) {
    // The driver takes the descriptor as the value of the pointer.
    auto* descriptor = reinterpret_cast<void*>(static_cast<std::uintptr_t>(shared[i].get()));
    CUmemGenericAllocationHandle handle = 0;
    STRAIT_TRY(driver.check(driver.import_handle(&handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                            "cannot take a peer's memory over"));
    memory.allocations_.emplace_back(driver, handle);
    STRAIT_TRY(driver.check(driver.map(memory.address_ + memory.mapped_bytes_, sizes_bytes[i], 0, handle, 0),
                            "cannot map a peer's memory"));
    memory.mapped_bytes_ += sizes_bytes[i];
  }
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  STRAIT_TRY(driver.check(driver.set_access(memory.address_, memory.bytes_, &access, 1),
                          "device " + std::to_string(device) + " cannot reach the memory of a peer directly"));
  return memory;
}

PeerMemory::~PeerMemory() {
  if (mapped_bytes_ != 0) driver_->unmap(address_, mapped_bytes_);
  if (address_ != 0) driver_->free_address(address_, bytes_);
}

PeerMemory::PeerMemory(PeerMemory&& other) noexcept
    : driver_(other.driver_),
      allocations_(std::move(other.allocations_)),
      address_(std::exchange(other.address_, 0)),
      bytes_(other.bytes_),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

PeerMemory& PeerMemory::operator=(PeerMemory&& other) noexcept {
  PeerMemory old(std::move(other));
  std::swap(driver_, old.driver_);
  std::swap(allocations_, old.allocations_);
  std::swap(address_, old.address_);
  std::swap(bytes_, old.bytes_);
  std::swap(mapped_bytes_, old.mapped_bytes_);
  return *this;
}

}  // namespace strait::cuda_p2p
