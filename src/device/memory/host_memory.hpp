#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/mapping.hpp"
#include "base/numa.hpp"
#include "base/unique_fd.hpp"

namespace strait {

/// Pinned host memory that the ranks of a host share, and that their GPUs read and write: a sealed memfd, which each
/// rank maps and registers with CUDA. It exists as long as any rank maps it.
class HostMemory {
 public:
  /// An object that is held as long as the memory is pinned, which may be longer than the HostMemory lives.
  using Lease = std::shared_ptr<const void>;
  /// Returns a handle that each communicator holds as long as its kernels may run. While there is any, memory is not
  /// unpinned, which would wait for these kernels, unless much unused memory has accumulated (Pinned).
  static std::shared_ptr<const void> keep_pinned();

  HostMemory() = default;
  /// Allocates zeroed memory that `device` can access. Parts that cannot be placed on their NUMA node lie anywhere.
  static Result<HostMemory> allocate(int device, std::size_t bytes, Lease lease = {},
                                     std::span<const PlacedPart> places = {});
  /// Maps what a peer's share() returned, with the same size, for access by `device`. `fd` stays open and the caller's.
  static Result<HostMemory> import(int fd, std::size_t bytes, int device, Lease lease = {});
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;

  /// Returns a descriptor for import(), in this process or another.
  Result<UniqueFd> share() const;
  std::size_t size_bytes() const { return mapping_.size_bytes(); }
  /// Returns the address for the host.
  std::byte* data() const { return mapping_.data(); }
  /// Returns the address for the device.
  std::byte* device_data() const { return device_data_; }

 private:
  Status register_for(int device);

  UniqueFd fd_;
  Mapping mapping_;
  Lease lease_;
  std::byte* device_data_ = nullptr;  ///< not null: registered with CUDA
};

}  // namespace strait
