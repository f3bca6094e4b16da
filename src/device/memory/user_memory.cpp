#include "device/memory/user_memory.hpp"

#include <string>
#include <utility>

namespace strait {
namespace {

using cuda::Allocation;
using cuda::Driver;

/// Returns the allocation that is mapped at an address; an error if there is none of the virtual memory interface.
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

Result<UniqueFd> UserMemory::share(std::size_t number) const { return parts_.at(number).allocation.share(); }

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
  for (const UniqueFd& each : shared) {
    STRAIT_ASSIGN(memory.allocations_.emplace_back(), Allocation::import(each.get()));
  }
  STRAIT_ASSIGN(memory.range_, cuda::AddressRange::map(memory.allocations_, sizes_bytes, {&device, 1}));
  return memory;
}

}  // namespace strait
