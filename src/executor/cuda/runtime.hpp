#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/own_thread.hpp"
#include "executor/cuda/virtual_memory.hpp"

/// CUDA runtime calls that return a Status, and RAII for its memory.
namespace strait::cuda {

/// Converts a CUDA result to a Status with the text "<what>: <CUDA's text>". Clears CUDA's record of the error. Builds
/// no text on success.
Status check(cudaError_t result, std::string_view what);

/// Makes a device current, and restores the previous one at the end of its lifetime. Costs almost nothing if the device
/// is current already. On threads of Strait's own the device is not restored: the previous one is that with which any
/// new thread begins, and CUDA would create a context on it that nobody needs and that takes some hundred megabytes.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    cudaGetDevice(&previous_);
    if (device == previous_) return;
    cudaSetDevice(device);
    changed_ = true;
  }
  ~DeviceGuard() {
    if (changed_ && !is_own_thread) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

/// Selects the device of a thread of Strait's own. Must precede its first CUDA call: most queries create a context on
/// the selected device, which is initially device 0, so every process of a host would have a context of half a GB
/// there.
inline void begin_own_thread(int device) {
  is_own_thread = true;
  cudaSetDevice(device);
}

/// Sets the thread's capture mode to relaxed during its lifetime, so that CUDA calls that Strait makes on any thread at
/// any time do not invalidate a stream capture of another thread.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// A DeviceGuard and a RelaxedCapture for as long as it lives. A class whose members release device resources has one
/// as its first member, in an optional that its destructor fills; so it lasts until the other members are destroyed.
struct RelaxedDeviceScope {
  explicit RelaxedDeviceScope(int device) : guard(device) {}
  DeviceGuard guard;
  RelaxedCapture relaxed;
};

/// Zeroes device memory, on a separate stream: waits for this, but for no other work of the device.
Status clear(int device, void* memory, std::size_t size_bytes);

/// Device memory. Neither allocating nor releasing it waits for work on the device, except that releasing does if the
/// driver has no virtual memory interface.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Allocates zeroed memory. `peers` are other devices that can access it; enable_peer_access() must have been called
  /// for them before.
  static Result<DeviceMemory> allocate(int device, std::size_t size_bytes, std::span<const int> peers = {});
  static Result<DeviceMemory> allocate_uncleared(int device, std::size_t size_bytes, std::span<const int> peers = {});
  ~DeviceMemory() {
    if (plain_ != nullptr) cudaFree(plain_);  // even cudaFree(nullptr) is a call, which could invalidate a capture
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : allocation_(std::move(other.allocation_)),
        range_(std::move(other.range_)),
        plain_(std::exchange(other.plain_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(allocation_, other.allocation_);
    std::swap(range_, other.range_);
    std::swap(plain_, other.plain_);
    return *this;
  }

  std::byte* data() const { return plain_ != nullptr ? static_cast<std::byte*>(plain_) : range_.data(); }

 private:
  Allocation allocation_;
  AddressRange range_;
  void* plain_ = nullptr;
};

/// Zeroed, pinned host memory that all devices access at its host address. Released memory is kept for the next
/// allocation of the same size, and never freed: freeing would wait for all work on the process's devices, and would
/// delay launches meanwhile.
class MappedMemory {
 public:
  MappedMemory() = default;
  static Result<MappedMemory> allocate(std::size_t size_bytes);
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Loads kernels onto the current device. A kernel that is loaded only at its first launch waits for running kernels.
Status load_kernels(std::span<const void* const> kernels);
/// Returns the compute capability, times ten, for which the code that the current device runs of a kernel was compiled.
/// A driver can also translate code for an older device, which then lacks the features of newer ones.
Result<int> compiled_for(const void* kernel);

/// Lets every device access the memory of every other. Fails with Code::unsupported, naming the pair, if one cannot.
Status enable_peer_access(std::span<const int> devices);

}  // namespace strait::cuda
