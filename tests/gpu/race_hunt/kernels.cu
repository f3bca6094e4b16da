#include "gpu/race_hunt/kernels.hpp"

#include <algorithm>

namespace strait::race {
namespace {

constexpr std::uint32_t check_threads = 256, most_check_blocks = 32;

template <class T>
__device__ T poisoned() {
  return static_cast<T>(0xa5a5a5a5a5a5a5a5u);
}

template <class T>
__device__ void check_as(const Check& check) {
  const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  unsigned long long wrong = 0;
  for (std::uint32_t s = 0; s < check.segments; ++s) {
    const Expected& segment = check.expected[s];
    T* const elements = reinterpret_cast<T*>(check.buffer) + segment.first;
    for (std::size_t i = thread; i < segment.count; i += threads) {
      const T got = elements[i];
      const T expected =
          segment.reference == nullptr ? poisoned<T>() : reinterpret_cast<const T*>(segment.reference)[i];
      elements[i] = poisoned<T>();
      if (got == expected) continue;
      ++wrong;
      if (atomicCAS(&check.finding->call, ~0ull, check.call) != ~0ull) continue;
      check.finding->element = segment.first + i;
      check.finding->got = got;
      check.finding->expected = expected;
    }
  }
  if (wrong != 0) atomicAdd(&check.finding->wrong, wrong);
}

__global__ void check_buffer(const __grid_constant__ Check check) {
  switch (check.width) {
    case 1:
      return check_as<std::uint8_t>(check);
    case 2:
      return check_as<std::uint16_t>(check);
    case 4:
      return check_as<std::uint32_t>(check);
    default:
      return check_as<unsigned long long>(check);
  }
}

__global__ void delay(std::uint32_t duration_ns) {
  std::uint64_t began_ns, now_ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began_ns));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
  } while (now_ns - began_ns < duration_ns);
}

}  // namespace

cudaError_t launch_check(const Check& check, cudaStream_t stream) {
  const Expected& last = check.expected[check.segments - 1];
  const std::size_t blocks = (last.first + last.count + check_threads - 1) / check_threads;
  check_buffer<<<static_cast<std::uint32_t>(std::min<std::size_t>(blocks, most_check_blocks)), check_threads, 0,
                 stream>>>(check);
  return cudaGetLastError();
}

cudaError_t launch_delay(std::uint32_t duration_ns, cudaStream_t stream) {
  delay<<<1, 1, 0, stream>>>(duration_ns);
  return cudaGetLastError();
}

cudaError_t load_kernels() {
  cudaFuncAttributes attributes;
  const cudaError_t loaded = cudaFuncGetAttributes(&attributes, check_buffer);
  return loaded == cudaSuccess ? cudaFuncGetAttributes(&attributes, delay) : loaded;
}

}  // namespace strait::race
