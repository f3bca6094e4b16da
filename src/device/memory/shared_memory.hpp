#pragma once

#include <cstddef>
#include <span>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "executor/cuda/virtual_memory.hpp"

namespace strait {

/// Memory of one device, mapped for devices that can access it, which other ranks import through a file descriptor. It
/// exists as long as anyone maps it, so it does not matter which rank frees first.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// Allocates at least `bytes`, zeroed, on `device`.
  static Result<SharedMemory> allocate(int device, std::size_t bytes);
  /// Allocates without zeroing: no stream is used, so that this may happen during a capture. `peers`: other devices of
  /// this process that get access at the same address.
  static Result<SharedMemory> allocate_uncleared(int device, std::size_t bytes, std::span<const int> peers = {});
  /// Maps what a peer's share() returned, with the same size, for access by `device`. `fd` stays open and the caller's.
  static Result<SharedMemory> import(int fd, std::size_t bytes, int device);

  /// Returns a descriptor for import(), in this process or another.
  Result<UniqueFd> share() const { return allocation_.share(); }
  std::byte* data() const { return range_.data(); }

 private:
  static Result<SharedMemory> map(cuda::Allocation allocation, std::size_t bytes, int device,
                                  std::span<const int> peers);

  cuda::Allocation allocation_;
  cuda::AddressRange range_;
};

}  // namespace strait
