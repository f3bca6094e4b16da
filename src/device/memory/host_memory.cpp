#include "device/memory/host_memory.hpp"

#include <cuda_runtime_api.h>
#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/log.hpp"
#include "device/memory/pinned.hpp"
#include "transports/shm/shared_heap.hpp"

namespace strait {
namespace {

Pinned& pinned() {
  const auto unregister = [](const Mapping& mapping) {
    cudaHostUnregister(mapping.data());
    cudaGetLastError();  // clears the error of a device that was reset
  };
  static auto* const of_process = new Pinned(unregister);  // communicators may be freed while the process ends
  return *of_process;
}

/// Places memory on NUMA nodes. To be called before it is pinned, as pinned pages stay where they are.
void place(const Mapping& mapping, std::span<const PlacedPart> places) {
  static std::atomic<bool> was_told = false;  // once per process: the system is the reason
  for (const PlacedPart& part : places) {
    const Status placed = prefer_numa_node(mapping.data() + part.offset, part.size_bytes, part.node);
    if (placed) continue;
    if (!was_told.exchange(true))
      log_info(-1, placed.error().message + ". What GPUs trade through lies where it is first touched");
    return;
  }
}

}  // namespace

std::shared_ptr<const void> HostMemory::keep_pinned() {
  pinned().take();
  return {&pinned(), [](Pinned* memory) { memory->let_go(); }};
}

Status HostMemory::register_for(int device) {
  const auto failed = [&](cudaError_t result) {
    cudaGetLastError();
    return fail(Code::cuda_error,
                "cannot pin " + std::to_string(mapping_.size_bytes() >> 20) + " MB of host memory for GPU " +
                    std::to_string(device) + ": " + cudaGetErrorString(result) +
                    ". Look at the memory limit of the container, or give STRAIT_HOST_MEMORY_BYTES less");
  };
  // Portable: kernels on every device of this process may be given the address.
  cudaError_t result =
      cudaHostRegister(mapping_.data(), mapping_.size_bytes(), cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (result != cudaSuccess) return failed(result);
  void* address = nullptr;
  result = cudaHostGetDevicePointer(&address, mapping_.data(), 0);
  if (result != cudaSuccess) {
    cudaHostUnregister(mapping_.data());
    return failed(result);
  }
  device_data_ = static_cast<std::byte*>(address);
  pinned().take();
  return {};
}

Result<HostMemory> HostMemory::allocate(int device, std::size_t bytes, Lease lease,
                                        std::span<const PlacedPart> places) {
  HostMemory memory;
  memory.lease_ = std::move(lease);
  STRAIT_ASSIGN(memory.fd_, shm::make_sealed_memory("strait-staging", bytes));
  STRAIT_ASSIGN(memory.mapping_, Mapping::of_file(memory.fd_.get(), bytes));
  place(memory.mapping_, places);
  STRAIT_TRY(memory.register_for(device));
  return memory;
}

Result<HostMemory> HostMemory::import(int fd, std::size_t bytes, int device, Lease lease) {
  HostMemory memory;
  memory.lease_ = std::move(lease);
  STRAIT_ASSIGN(memory.mapping_, Mapping::of_file(fd, bytes));
  STRAIT_TRY(memory.register_for(device));
  return memory;
}

Result<UniqueFd> HostMemory::share() const {
  UniqueFd copy(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (copy.get() < 0)
    return fail(Code::system_error, std::string("cannot share the staging memory: ") + std::strerror(errno));
  return copy;
}

HostMemory::~HostMemory() {
  if (device_data_ != nullptr) pinned().let_go(std::move(mapping_), std::move(lease_));
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      mapping_(std::move(other.mapping_)),
      lease_(std::move(other.lease_)),
      device_data_(std::exchange(other.device_data_, nullptr)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  HostMemory old(std::move(other));
  std::swap(fd_, old.fd_);
  std::swap(mapping_, old.mapping_);
  std::swap(lease_, old.lease_);
  std::swap(device_data_, old.device_data_);
  return *this;
}

}  // namespace strait
