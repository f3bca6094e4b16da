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

/// Pinned host memory that the ranks of a host share and their GPUs read and write: a sealed memfd, mapped and
/// registered with CUDA by each. It lives as long as anybody maps it.
class HostMemory {
 public:
  /// What is held as long as the memory is pinned: that may be longer than this lives.
  using Lease = std::shared_ptr<const void>;
  /// For every communicator, as long as its kernels may run: while any is held, no memory is unpinned, which would wait
  /// for them, unless much has gathered.
  static std::shared_ptr<const void> keep_pinned();

  HostMemory() = default;
  /// Zeroed, for access by `device`. Parts whose place cannot be had lie anywhere.
  static Result<HostMemory> allocate(int device, std::size_t bytes, Lease lease = {},
                                     std::span<const PlacedPart> places = {});
  /// What a peer's share() gave, of the same size, for access by `device`. Reads the descriptor, leaves it open.
  static Result<HostMemory> import(int fd, std::size_t bytes, int device, Lease lease = {});
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;

  /// A descriptor that import() takes, in this process or another.
  Result<UniqueFd> share() const;
  std::size_t size_bytes() const { return mapping_.size_bytes(); }
  /// As the host addresses it.
  std::byte* data() const { return mapping_.data(); }
  /// As the device does.
  std::byte* device_data() const { return device_data_; }

 private:
  Status register_for(int device);

  UniqueFd fd_;
  Mapping mapping_;
  Lease lease_;
  std::byte* device_data_ = nullptr;  ///< set: registered
};

}  // namespace strait
