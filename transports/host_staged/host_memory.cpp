#include "transports/host_staged/host_memory.hpp"

#include <cuda_runtime_api.h>
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "transports/shm/shared_heap.hpp"

namespace strait::host_staged {

Status HostMemory::register_for(int device) {
  const auto failed = [&](cudaError_t result) {
    cudaGetLastError();
    return fail(Code::cuda_error,
                "cannot pin " + std::to_string(mapping_.size_bytes() >> 20) + " MB of host memory for GPU " +
                    std::to_string(device) + ": " + cudaGetErrorString(result) +
                    ". Look at the limits of locked memory (ulimit -l) and of the container's memory");
  };
  // Portable: kernels of every device of this process may be given the address.
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
  return {};
}

Result<HostMemory> HostMemory::allocate(int device, std::size_t bytes) {
  HostMemory memory;
  STRAIT_ASSIGN(memory.fd_, shm::make_sealed_memory("strait-staging", bytes));
  STRAIT_ASSIGN(memory.mapping_, Mapping::of_file(memory.fd_.get(), bytes));
  STRAIT_TRY(memory.register_for(device));
  return memory;
}

Result<HostMemory> HostMemory::import(int fd, std::size_t bytes, int device) {
  HostMemory memory;
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
  if (device_data_ != nullptr) cudaHostUnregister(mapping_.data());
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      mapping_(std::move(other.mapping_)),
      device_data_(std::exchange(other.device_data_, nullptr)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  HostMemory old(std::move(other));
  std::swap(fd_, old.fd_);
  std::swap(mapping_, old.mapping_);
  std::swap(device_data_, old.device_data_);
  return *this;
}

}  // namespace strait::host_staged
