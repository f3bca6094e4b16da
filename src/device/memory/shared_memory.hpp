#pragma once

#include <cstddef>
#include <span>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "executor/cuda/virtual_memory.hpp"

namespace strait {

/// Memory of one device, mapped for devices that reach it, which other ranks import by a file descriptor. The memory
/// lives as long as anybody maps it: whoever frees first harms nobody.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// At least `bytes`, zeroed, on `device`.
  static Result<SharedMemory> allocate(int device, std::size_t bytes);
  /// Likewise, but not zeroed: no stream is used, so that it may happen while one is captured. `peers`: other devices
  /// of this process that are to reach it at the same address.
  static Result<SharedMemory> allocate_uncleared(int device, std::size_t bytes, std::span<const int> peers = {});
  /// What a peer's share() gave, of the same size, for access by `device`. Reads the descriptor, leaves it open.
  static Result<SharedMemory> import(int fd, std::size_t bytes, int device);

  /// A descriptor that import() takes, in this process or another.
  Result<UniqueFd> share() const { return allocation_.share(); }
  std::byte* data() const { return range_.data(); }

 private:
  static Result<SharedMemory> map(cuda::Allocation allocation, std::size_t bytes, int device,
                                  std::span<const int> peers);

  cuda::Allocation allocation_;
  cuda::AddressRange range_;
};

}  // namespace strait
