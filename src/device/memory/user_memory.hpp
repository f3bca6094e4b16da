#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "executor/cuda/virtual_memory.hpp"

namespace strait {

/// Memory of one device that the user has allocated, by the driver's virtual memory interface and so that it can be
/// shared: one or more whole allocations, mapped one behind the other. They live as long as this refers to them.
class UserMemory {
 public:
  UserMemory() = default;
  /// Code::invalid_argument: it is not of that kind, or of another device.
  static Result<UserMemory> find(const void* pointer, std::size_t bytes, int device);

  /// Of the allocations, in order.
  std::vector<std::size_t> sizes_bytes() const;
  /// Where in them the memory begins.
  std::size_t offset() const { return offset_; }
  /// A descriptor for PeerMemory, in this process or another.
  Result<UniqueFd> share(std::size_t number) const;
  /// Whether the same memory is still mapped there. If the user has freed it, other memory may have its addresses.
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

/// A peer's UserMemory, mapped for a device of this process. Where it ends no work may be under way that uses it.
class PeerMemory {
 public:
  PeerMemory() = default;
  /// What the peer's share() gave, and its sizes_bytes(). Reads the descriptors, leaves them open.
  static Result<PeerMemory> import(std::span<const UniqueFd> shared, std::span<const std::size_t> sizes_bytes,
                                   int device);
  /// Of the first allocation.
  std::byte* data() const { return range_.data(); }

 private:
  std::vector<cuda::Allocation> allocations_;
  cuda::AddressRange range_;
};

}  // namespace strait
