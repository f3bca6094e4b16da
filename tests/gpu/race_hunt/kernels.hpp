#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// What the hunt does on the GPUs beside Strait's calls.
namespace strait::race {

inline constexpr std::uint32_t max_expected = 24;  ///< segments of a buffer

/// Elements that must lie at a place of a buffer.
struct Expected {
  std::size_t first;           ///< element of the buffer
  std::size_t count;           ///< elements
  const std::byte* reference;  ///< the elements themselves; null: poison
};

/// What checks of a rank have found. In device memory.
struct Finding {
  unsigned long long wrong;    ///< elements
  unsigned long long call;     ///< the first that was wrong
  unsigned long long element;  ///< of its buffer
  unsigned long long got;
  unsigned long long expected;
};

/// Looks at a buffer after a call, and poisons it for the next one.
struct Check {
  std::byte* buffer;
  std::uint32_t width;  ///< of an element, bytes
  std::uint32_t segments;
  Expected expected[max_expected];
  unsigned long long call;
  Finding* finding;
};

inline constexpr unsigned char poison = 0xa5;

cudaError_t launch_check(const Check& check, cudaStream_t stream);
/// Keeps a stream busy.
cudaError_t launch_delay(std::uint32_t duration_ns, cudaStream_t stream);
/// Loads both kernels on the current device.
cudaError_t load_kernels();

}  // namespace strait::race
