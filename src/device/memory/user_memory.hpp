#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "executor/cuda/virtual_memory.hpp"

namespace strait {

/// Device memory that the user has allocated through the driver's virtual memory interface, in a way that can be
/// shared: one or more whole allocations, mapped one behind the other. The object's references keep them alive.
class UserMemory {
 public:
  UserMemory() = default;
  /// Finds the allocations of a buffer. Code::invalid_argument: the memory is of another kind, or on another device.
  static Result<UserMemory> find(const void* pointer, std::size_t bytes, int device);

  /// Returns the sizes of the allocations, in order.
  std::vector<std::size_t> sizes_bytes() const;
  /// Returns where in the allocations the buffer begins.
  std::size_t offset() const { return offset_; }
  /// Returns a descriptor of the allocation with this number for PeerMemory, in this process or another.
  Result<UniqueFd> share(std::size_t number) const;
  /// Returns whether the same allocations are still mapped there. If the user has freed them, other memory may be at
  /// these addresses.
  bool is_still_there() const;

 private:
  struct Part {
    CUdeviceptr address;
    std::size_t bytes;
    cuda::Allocation allocation;
  };
  const cuda::Driver* driver_ = nullptr;
  std::vector<Part> parts_;
  std::size_t offset_ = 0;
};

/// A peer's UserMemory, mapped for a device of this process. When it is destroyed, no work that uses it may be under
/// way.
class PeerMemory {
 public:
  PeerMemory() = default;
  /// Maps what the peer's share() and sizes_bytes() returned. The descriptors stay open and the caller's.
  static Result<PeerMemory> import(std::span<const UniqueFd> shared, std::span<const std::size_t> sizes_bytes,
                                   int device);
  /// Returns where the first allocation begins.
  std::byte* data() const { return range_.data(); }

 private:
  std::vector<cuda::Allocation> allocations_;
  cuda::AddressRange range_;
};

}  // namespace strait
