#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "executor/cuda/driver.hpp"

/// Memory of the driver's virtual memory interface as RAII. Unlike cudaFree(), to let go of it waits for nothing and
/// holds nobody's launches up: whoever does must know that no work uses it.
namespace strait::cuda {

/// A reference to an allocation, which lives as long as anybody refers to it or maps it.
class Allocation {
 public:
  Allocation() = default;
  Allocation(const Driver& driver, CUmemGenericAllocationHandle handle) : driver_(&driver), handle_(handle) {}
  /// At least `bytes` of the device. `can_be_shared`: by share().
  static Result<Allocation> create(int device, std::size_t bytes, bool can_be_shared);
  /// What share() gave, here or in another process. Reads the descriptor, leaves it open.
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

  /// As many bytes as an allocation of at least so many has.
  static Result<std::size_t> rounded(int device, std::size_t bytes, bool can_be_shared);

 private:
  const Driver* driver_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
};

/// Addresses at which devices reach allocations, one behind the other.
class AddressRange {
 public:
  AddressRange() = default;
  /// `sizes_bytes`: of the allocations, whole. `devices`: that reach them.
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
