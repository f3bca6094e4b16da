#pragma once

#include <cstddef>
#include <utility>

#include "base/error.hpp"

namespace strait {

/// Owns a range of mapped memory, and unmaps it in the destructor.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~Mapping();

  /// Maps the shared memory behind `fd` for reading and writing. Pages are allocated when they are first touched
  /// (MAP_NORESERVE).
  static Result<Mapping> of_file(int fd, std::size_t size_bytes);
  /// Maps zeroed private memory. Pages are allocated when they are first touched (MAP_NORESERVE).
  static Result<Mapping> anonymous(std::size_t size_bytes);

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  Mapping(std::byte* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  static Result<Mapping> map(int flags, int fd, std::size_t size_bytes);

  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace strait
