#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "executor/cuda/driver.hpp"

/// Memory of the driver's virtual memory interface as RAII. Unlike cudaFree(), releasing it waits for nothing and
/// delays no launches, so the owner must know that no work uses it any more.
namespace strait::cuda {

/// A reference to an allocation, which exists as long as it is referenced or mapped anywhere.
class Allocation {
 public:
  Allocation() = default;
  Allocation(const Driver& driver, CUmemGenericAllocationHandle handle) : driver_(&driver), handle_(handle) {}
  /// Allocates at least `bytes` on the device. `can_be_shared`: share() may be called.
  static Result<Allocation> create(int device, std::size_t bytes, bool can_be_shared);
  /// Returns a reference to the allocation whose descriptor share() has returned, here or in another process. The
  /// descriptor stays open.
  static Result<Allocation> import(int fd);
  ~Allocation();
  Allocation(Allocation&& other) noexcept : driver_(std::exchange(other.driver_, nullptr)), handle_(other.handle_) {}
  Allocation& operator=(Allocation&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
    return *this;
  }

  Result<UniqueFd> share() const;
  CUmemGenericAllocationHandle handle() const { return handle_; }

  /// Returns the actual size of an allocation of at least `bytes`.
  static Result<std::size_t> rounded(int device, std::size_t bytes, bool can_be_shared);

 private:
  const Driver* driver_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
};

/// A range of addresses at which devices access one or several consecutive allocations.
class AddressRange {
 public:
  AddressRange() = default;
  /// `sizes_bytes`: the full sizes of the allocations. `devices`: the devices that get access.
  static Result<AddressRange> map(std::span<const Allocation> allocations, std::span<const std::size_t> sizes_bytes,
                                  std::span<const int> devices);
  ~AddressRange();
  AddressRange(AddressRange&& other) noexcept
      : driver_(other.driver_),
        address_(std::exchange(other.address_, 0)),
        bytes_(other.bytes_),
        mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}
  AddressRange& operator=(AddressRange&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    return *this;
  }

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  const Driver* driver_ = nullptr;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0, mapped_bytes_ = 0;
};

}  // namespace strait::cuda
