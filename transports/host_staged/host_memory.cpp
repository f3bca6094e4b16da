#include "transports/host_staged/host_memory.hpp"

#include <cuda_runtime_api.h>
#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "transports/shm/shared_heap.hpp"

namespace strait::host_staged {
namespace {

/// Memory that is registered with CUDA, and that which nobody uses any more. To unregister waits for all that runs on
/// the process's devices, and holds its launches up meanwhile: another communicator's kernel would wait for ever if its
/// peers need one of those launches. So it is done when no other memory of this kind is in use, or when much has
/// gathered.
class Pinned {
 public:
  static Pinned& of_process() {
    static auto* const pinned = new Pinned;  // communicators may be let go of while the process ends
    return *pinned;
  }
  void take() {
    const std::lock_guard lock(mutex_);
    ++in_use_;
  }
  void let_go(Mapping mapping) {
    const std::lock_guard lock(mutex_);
    unused_bytes_ += mapping.size_bytes();
    unused_.push_back(std::move(mapping));
    if (--in_use_ != 0 && unused_bytes_ <= most_unused_bytes) return;
    for (const Mapping& each : unused_) cudaHostUnregister(each.data());
    cudaGetLastError();  // a device that was reset has forgotten it
    unused_.clear();
    unused_bytes_ = 0;
  }

 private:
  static constexpr std::size_t most_unused_bytes = std::size_t{512} << 20;
  std::mutex mutex_;
  std::size_t in_use_ = 0, unused_bytes_ = 0;
  std::vector<Mapping> unused_;
};

/// Before pages are pinned, for those stay where they are.
void place(const Mapping& mapping, std::span<const PlacedPart> places) {
  static std::atomic<bool> was_told = false;  // once a process: the reason is the system's
  for (const PlacedPart& part : places) {
    const Status placed = prefer_numa_node(mapping.data() + part.offset, part.size_bytes, part.node);
    if (placed) continue;
    if (!was_told.exchange(true))
      log_info(-1, placed.error().message + ". What GPUs trade through lies where it is first touched");
    return;
  }
}

}  // namespace

Status HostMemory::register_for(int device) {
  const auto failed = [&](cudaError_t result) {
    cudaGetLastError();
    return fail(Code::cuda_error,
                "cannot pin " + std::to_string(mapping_.size_bytes() >> 20) + " MB of host memory for GPU " +
                    std::to_string(device) + ": " + cudaGetErrorString(result) +
                    ". Look at the limits of locked memory (ulimit -l) and of the container's memory, or give "
                    "STRAIT_HOST_MEMORY_BYTES less");
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
  Pinned::of_process().take();
  return {};
}

Result<HostMemory> HostMemory::allocate(int device, std::size_t bytes, std::span<const PlacedPart> places) {
  HostMemory memory;
  STRAIT_ASSIGN(memory.fd_, shm::make_sealed_memory("strait-staging", bytes));
  STRAIT_ASSIGN(memory.mapping_, Mapping::of_file(memory.fd_.get(), bytes));
  place(memory.mapping_, places);
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
  if (device_data_ != nullptr) Pinned::of_process().let_go(std::move(mapping_));
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
