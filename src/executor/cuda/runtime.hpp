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

/// The CUDA runtime's calls as Status, and its memory as RAII.
namespace strait::cuda {

/// "<what>: <CUDA's text>". Clears CUDA's record of the error. No text is made where there is no error.
Status check(cudaError_t result, std::string_view what);

/// Makes a device current, and the one before it again. Costs next to nothing where it is current already. On a thread
/// of Strait's own it stays: the one before it is whichever a new thread begins with, on which CUDA would make a
/// context that nobody needs and that takes some hundred megabytes there.
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

/// By a thread of Strait's own, before it asks CUDA anything: most questions make a context on the device that the
/// thread has selected, which at first is 0. So every process of a host would have one there, of half a GB.
inline void begin_own_thread(int device) {
  is_own_thread = true;
  cudaSetDevice(device);
}

/// What any thread may do at any time must not spoil what another one captures.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Both for as long as it lives. A class whose members let go of what a device has holds one as its first member, empty
/// until its destructor begins: then it lasts until the others are gone.
struct Undisturbing {
  explicit Undisturbing(int device) : guard(device) {}
  DeviceGuard guard;
  RelaxedCapture relaxed;
};

/// Zeroes memory of a device, on a stream of its own: waits for nothing else that the device does.
Status clear(int device, void* memory, std::size_t size_bytes);

/// Memory of a device. Neither to get it nor to let go of it waits for what runs on the device; with a driver that has
/// no virtual memory interface, to let go does.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Zeroed. `peers`: other devices that reach it, too; enable_peer_access() must have been called for them.
  static Result<DeviceMemory> allocate(int device, std::size_t size_bytes, std::span<const int> peers = {});
  static Result<DeviceMemory> allocate_uncleared(int device, std::size_t size_bytes, std::span<const int> peers = {});
  ~DeviceMemory() {
    if (plain_ != nullptr) cudaFree(plain_);  // of nothing it is a call, too, which captures may not like
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

/// Host memory that all devices reach at its own address. Zeroed. What is let go of is kept for the next of its size,
/// and never freed: that would wait for all that runs on the process's devices, and hold its launches up meanwhile.
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

/// Loads these kernels onto the current device: what is loaded only at its first launch waits for kernels that run.
Status load_kernels(std::span<const void* const> kernels);
/// The compute capability, times ten, that the code of a kernel was compiled for, of what the current device runs of
/// it. A driver makes code for a device out of that for an older one, too, without what only newer ones can do.
Result<int> compiled_for(const void* kernel);

/// Lets every device reach the memory of every other; fails with Code::unsupported and the pair where it cannot.
Status enable_peer_access(std::span<const int> devices);

}  // namespace strait::cuda
