#pragma once

#include <cstddef>
#include <utility>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "executor/cuda/driver.hpp"

namespace strait::cuda_p2p {

/// Memory of one device, mapped for one device (the same, or a peer that reaches it): an allocation of the driver's
/// virtual memory interface, which other ranks import by a file descriptor. The memory lives as long as anybody maps
/// it: whoever frees first harms nobody.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// At least `bytes`, zeroed, on `device`.
  static Result<SharedMemory> allocate(int device, std::size_t bytes);
  /// Likewise, but not zeroed: no stream is used, so that it may happen while one is captured.
  static Result<SharedMemory> allocate_uncleared(int device, std::size_t bytes);
  /// What a peer's share() gave, of the same size, for access by `device`. Reads the descriptor, leaves it open.
  static Result<SharedMemory> import(int fd, std::size_t bytes, int device);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  /// A descriptor that import() takes, in this process or another.
  Result<UniqueFd> share() const;
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  static CUmemAllocationProp properties(int device);
  static Result<std::size_t> rounded(const cuda::Driver& driver, int device, std::size_t bytes);
  Status map(const cuda::Driver& driver, int device);

  const cuda::Driver* driver_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
  bool created_ = false;
  bool mapped_ = false;
};

}  // namespace strait::cuda_p2p
