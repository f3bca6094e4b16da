#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/error.hpp"

/// The CUDA runtime's calls as Status, and its memory as RAII.
namespace strait::cuda {

/// "<what>: <CUDA's text>". Clears CUDA's record of the error.
Status check(cudaError_t result, const std::string& what);

/// Makes a device current, and the one before it again. Costs next to nothing where it is current already.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    cudaGetDevice(&previous_);
    if (device == previous_) return;
    cudaSetDevice(device);
    changed_ = true;
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

/// Memory of a device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Zeroed. Waits for what runs on the device.
  static Result<DeviceMemory> allocate(int device, std::size_t size_bytes);
  static Result<DeviceMemory> allocate_uncleared(int device, std::size_t size_bytes);
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

/// Host memory that all devices reach at its own address. Zeroed.
class MappedMemory {
 public:
  MappedMemory() = default;
  static Result<MappedMemory> allocate(std::size_t size_bytes);
  ~MappedMemory() { cudaFreeHost(data_); }
  MappedMemory(MappedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Loads these kernels onto the current device: what is loaded only at its first launch waits for kernels that run.
Status load_kernels(std::span<const void* const> kernels);

struct LaunchShape {
  std::uint32_t blocks, threads;
  bool overlaps;                   ///< may begin while the kernel before it still runs
  std::uint32_t memory_bytes = 0;  ///< of a block, besides what the kernel has in any launch
};
/// Launches a kernel with one argument, to which that pointer points.
Status launch_kernel(int device, const void* kernel, const void* argument, const LaunchShape& shape, void* stream);

/// Lets every device reach the memory of every other; fails with Code::unsupported and the pair where it cannot.
Status enable_peer_access(std::span<const int> devices);

}  // namespace strait::cuda
