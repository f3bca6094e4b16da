#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// The hunt's own kernels, which run between Strait's calls.
namespace strait::race {

inline constexpr std::uint32_t max_expected = 24;  ///< most segments of a buffer

/// The elements that a segment of a buffer must hold.
struct Expected {
  std::size_t first;           ///< first element in the buffer
  std::size_t count;           ///< number of elements
  const std::byte* reference;  ///< the expected elements; null: poison
};

/// What the checks of one rank have found. In device memory.
struct Finding {
  unsigned long long wrong;    ///< number of wrong elements
  unsigned long long call;     ///< the first call that had one
  unsigned long long element;  ///< the element's index in that call's buffer
  unsigned long long got;
  unsigned long long expected;
};

/// Compares a buffer with what it must hold after a call, and poisons it for the next one.
struct Check {
  std::byte* buffer;
  std::uint32_t width;  ///< size of an element, bytes
  std::uint32_t segments;
  Expected expected[max_expected];
  unsigned long long call;
  Finding* finding;
};

inline constexpr unsigned char poison = 0xa5;

cudaError_t launch_check(const Check& check, cudaStream_t stream);
/// Launches a kernel that keeps the stream busy.
cudaError_t launch_delay(std::uint32_t duration_ns, cudaStream_t stream);
/// Loads both kernels on the current device, so that their first launch does not.
cudaError_t load_kernels();

}  // namespace strait::race
