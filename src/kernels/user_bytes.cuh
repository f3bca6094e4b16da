#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/primitives.cuh"

namespace strait::kernels {

/// Words of user memory with an odd alignment or length, accessed `alignment` bytes at a time if the length allows. Not
/// inlined: inlined wherever it may be needed, it made kernels ten times as large, and each launch waited for its
/// instructions to be loaded.
struct OddBytes {
  template <class T>
  static __device__ std::uint64_t assemble_from(const std::byte* from, std::uint32_t bytes) {
    std::uint64_t word = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < 8; i += sizeof(T))
      if (i < bytes) word |= std::uint64_t{*reinterpret_cast<const T*>(from + i)} << (8 * i);
    return word;
  }
  template <class T>
  static __device__ void scatter_to(std::byte* to, std::uint32_t bytes, std::uint64_t word) {
#pragma unroll
    for (std::uint32_t i = 0; i < 8; i += sizeof(T))
      if (i < bytes) *reinterpret_cast<T*>(to + i) = static_cast<T>(word >> (8 * i));
  }
  /// Returns the size of one access: the alignment if the length is a multiple of it; otherwise 2 or 1.
  static __device__ std::uint32_t piece(std::uint32_t bytes, std::uint32_t alignment) {
    return bytes % alignment == 0 ? alignment : bytes % 2 == 0 && alignment % 2 == 0 ? 2 : 1;
  }
  static __device__ std::uint64_t assemble(const std::byte* from, std::uint32_t bytes, std::uint32_t alignment) {
    if (bytes == 0) return 0;
    const std::uint32_t size = piece(bytes, alignment);
    if (size >= 4) return assemble_from<std::uint32_t>(from, bytes);
    return size == 2 ? assemble_from<std::uint16_t>(from, bytes) : assemble_from<std::uint8_t>(from, bytes);
  }
  static __device__ void scatter(std::byte* to, std::uint32_t bytes, std::uint32_t alignment, std::uint64_t word) {
    if (bytes == 0) return;
    const std::uint32_t size = piece(bytes, alignment);
    if (size >= 4) {
      scatter_to<std::uint32_t>(to, bytes, word);
    } else if (size == 2) {
      scatter_to<std::uint16_t>(to, bytes, word);
    } else {
      scatter_to<std::uint8_t>(to, bytes, word);
    }
  }
  /// Stores fewer than 4 bytes; 2 bytes begin at an even address and are stored at once.
  static __device__ void store_few(std::byte* to, std::uint32_t bytes, std::uint64_t word) {
    if (bytes == 2) {
      scatter_to<std::uint16_t>(to, 2, word);
    } else {
      scatter_to<std::uint8_t>(to, bytes, word);
    }
  }
  /// Stores a granule at an address that is not a multiple of 4: the three words of 4 bytes within it, and the bytes
  /// before and after them.
  static __device__ void store_words(std::byte* to, const Granule& g) {
    const std::uint32_t before = 4 - static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(to)) % 4;
    const std::uint32_t bits = 8 * before;
    auto* const words = reinterpret_cast<std::uint32_t*>(to + before);
    const std::uint64_t two = g.low >> bits | g.high << (64 - bits);
    store_few(to, before, g.low);
    words[0] = static_cast<std::uint32_t>(two);
    words[1] = static_cast<std::uint32_t>(two >> 32);
    words[2] = static_cast<std::uint32_t>(g.high >> bits);
    store_few(to + before + 12, 4 - before, g.high >> (32 + bits));
  }
  static STRAIT_NOINLINE __device__ Granule load(const std::byte* from, std::uint32_t valid, std::uint32_t alignment) {
    return {assemble(from, valid < 8 ? valid : 8, alignment), assemble(from + 8, valid < 8 ? 0 : valid - 8, alignment)};
  }
  static STRAIT_NOINLINE __device__ void store(std::byte* to, std::uint32_t valid, std::uint32_t alignment, Granule g) {
    if (valid == 16 && alignment < 4) return store_words(to, g);
    scatter(to, valid < 8 ? valid : 8, alignment, g.low);
    scatter(to + 8, valid < 8 ? 0 : valid - 8, alignment, g.high);
  }
};

/// User memory of any alignment, as granules whose distance from its beginning is a multiple of `stride` bytes (8 or
/// 16). In lines the stride is 8: the data of a line begins 120 bytes after that of the previous line, so 8 bytes are
/// the widest access that suits all lines.
template <std::uint32_t stride>
class UserBytes {
 public:
  __device__ UserBytes(const std::byte* data) : data_(const_cast<std::byte*>(data)) {
    const auto bits = reinterpret_cast<std::uintptr_t>(data);
    alignment_ = bits % stride == 0 ? stride : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : bits % 2 == 0 ? 2 : 1;
  }

  /// Returns whether load_whole() and store_whole() may be used, which have no branches: memory is aligned to 8 bytes,
  /// and of each word of 8 bytes all bytes exist or none.
  __device__ __forceinline__ bool is_whole(std::uint32_t valid) const {
    return ((static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(data_)) | valid) & 7) == 0;
  }
  __device__ __forceinline__ Granule load_whole(std::uint32_t valid) const {
    Granule g{};
    if (valid != 0) g.low = *reinterpret_cast<const std::uint64_t*>(data_);
    if (valid == 16) g.high = *reinterpret_cast<const std::uint64_t*>(data_ + 8);
    return g;
  }
  __device__ __forceinline__ void store_whole(std::uint32_t valid, const Granule& g) const {
    if (valid != 0) *reinterpret_cast<std::uint64_t*>(data_) = g.low;
    if (valid == 16) *reinterpret_cast<std::uint64_t*>(data_ + 8) = g.high;
  }

  /// Returns the granule at `offset`, of which `valid` bytes (at most 16) exist; the rest is zero.
  __device__ __forceinline__ Granule load(std::size_t offset, std::uint32_t valid) const {
    const std::byte* from = data_ + offset;
    if (stride == 16 && alignment_ == 16 && valid == 16) return *reinterpret_cast<const Granule*>(from);
    if (stride == 8 && alignment_ == 8 && (valid == 16 || valid == 8)) {
      Granule g{*reinterpret_cast<const std::uint64_t*>(from), 0};
      if (valid == 16) g.high = *reinterpret_cast<const std::uint64_t*>(from + 8);
      return g;
    }
    return valid == 0 ? Granule{} : OddBytes::load(from, valid, alignment_);
  }
  __device__ __forceinline__ void store(std::size_t offset, std::uint32_t valid, const Granule& g) const {
    std::byte* to = data_ + offset;
    if (stride == 16 && alignment_ == 16 && valid == 16) {
      *reinterpret_cast<Granule*>(to) = g;
    } else if (stride == 8 && alignment_ == 8 && (valid == 16 || valid == 8)) {
      *reinterpret_cast<std::uint64_t*>(to) = g.low;
      if (valid == 16) *reinterpret_cast<std::uint64_t*>(to + 8) = g.high;
    } else if (valid != 0) {
      OddBytes::store(to, valid, alignment_, g);
    }
  }

 private:
  std::byte* data_;
  std::uint32_t alignment_;
};

}  // namespace strait::kernels
