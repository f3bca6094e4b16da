#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/reduce_spec.hpp"
#include "executor/cuda/runtime.hpp"
#include "support/random_data.hpp"

/// GPU ranks of one process for measurements: their streams, buffers and expected sums, and the check of results on the
/// device.
namespace strait::perf {

/// Counts the elements that differ, and the guard bytes after them that are no longer 0xa5.
template <class T>
__global__ void count_differences(const T* expected, const T* got, std::size_t count, std::size_t guard,
                                  unsigned long long* differences) {
  unsigned long long mine = 0;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    mine += expected[i] != got[i];
  const auto* after = reinterpret_cast<const std::uint8_t*>(got + count);
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < guard; i += stride)
    mine += after[i] != 0xa5;
  if (mine != 0) atomicAdd(differences, mine);
}

inline constexpr std::size_t guard_bytes = 256;

struct GpuRank {
  int device = 0;
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;
  cuda::DeviceMemory input, output, expected, differences;
};

/// Calls function(begin, end) for parts of [0, count), in parallel on all cores. Returns when all calls have returned.
template <class F>
void parallel_for(std::size_t count, F function) {
  const std::size_t workers = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t part = (count + workers - 1) / workers;
  std::vector<std::jthread> threads;
  for (std::size_t begin = 0; begin < count; begin += part)
    threads.emplace_back([=] { function(begin, std::min(count, begin + part)); });
}

class GpuRanks {
 public:
  static Result<std::unique_ptr<GpuRanks>> create(const std::vector<int>& devices, std::size_t most_bytes) {
    std::unique_ptr<GpuRanks> ranks(new GpuRanks);
    ranks->most_bytes_ = most_bytes;
    for (const int device : devices) {
      cuda::DeviceGuard guard(device);
      GpuRank rank;
      rank.device = device;
      STRAIT_TRY(cuda::check(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), "cannot make a stream"));
      STRAIT_TRY(cuda::check(cudaEventCreate(&rank.start), "cannot make an event"));
      STRAIT_TRY(cuda::check(cudaEventCreate(&rank.stop), "cannot make an event"));
      for (cuda::DeviceMemory* memory : {&rank.input, &rank.output, &rank.expected}) {
        STRAIT_ASSIGN(*memory, cuda::DeviceMemory::allocate(device, most_bytes + 2 * guard_bytes, devices));
      }
      STRAIT_ASSIGN(rank.differences, cuda::DeviceMemory::allocate(device, sizeof(unsigned long long)));
      ranks->ranks.push_back(std::move(rank));
    }
    return ranks;
  }
  ~GpuRanks() {
    for (GpuRank& rank : ranks) {
      cudaStreamDestroy(rank.stream);
      cudaEventDestroy(rank.start);
      cudaEventDestroy(rank.stop);
    }
  }

  /// Generates random inputs of `type` with many corner cases, and computes their sums in rank order by a plain loop on
  /// the CPU.
  template <DataType type>
  Status fill() {
    using Element = spec::ElementType<type>;
    const std::size_t count = most_bytes_ / sizeof(Element);
    std::vector<std::vector<Element>> inputs(ranks.size(), std::vector<Element>(count));
    std::vector<Element> sums(count);
    parallel_for(count, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = 0; r < inputs.size(); ++r)
        for (std::size_t i = begin; i < end; ++i)
          inputs[r][i] = from_bits<Element>(testing::detail::random_float_bits<Element>(i, r + 1));
      for (std::size_t i = begin; i < end; ++i) {
        auto sum = spec::load<type>(inputs[0][i]);
        for (std::size_t r = 1; r < inputs.size(); ++r)
          sum = spec::combine<ReduceOp::sum>(sum, spec::load<type>(inputs[r][i]));
        sums[i] = spec::store<type>(sum);
      }
    });
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      cuda::DeviceGuard guard(ranks[r].device);
      STRAIT_TRY(copy_in(ranks[r].input, inputs[r].data(), count * sizeof(Element)));
      STRAIT_TRY(copy_in(ranks[r].expected, sums.data(), count * sizeof(Element)));
      STRAIT_TRY(cuda::check(cudaDeviceSynchronize(), "cannot upload inputs"));
    }
    return {};
  }

  /// Fills the outputs with poison. For calls in place, also copies the inputs, from `input_offset` on, into the
  /// outputs at `output_offset`. Offsets are in bytes.
  Status prepare(bool in_place, std::size_t bytes, std::size_t input_offset, std::size_t output_offset) {
    for (GpuRank& rank : ranks) {
      cuda::DeviceGuard guard(rank.device);
      STRAIT_TRY(
          cuda::check(cudaMemsetAsync(rank.output.data(), 0xa5, output_offset + bytes + guard_bytes, rank.stream),
                      "cannot poison outputs"));
      if (in_place)
        STRAIT_TRY(cuda::check(cudaMemcpyAsync(rank.output.data() + output_offset, rank.input.data() + input_offset,
                                               bytes, cudaMemcpyDeviceToDevice, rank.stream),
                               "cannot copy inputs"));
    }
    return synchronize();
  }

  /// Returns the number of wrong elements in all outputs. All streams must be idle.
  template <class T>
  Result<unsigned long long> differences(std::size_t count, std::size_t input_offset, std::size_t output_offset) {
    unsigned long long total = 0;
    for (GpuRank& rank : ranks) {
      cuda::DeviceGuard guard(rank.device);
      auto* counter = reinterpret_cast<unsigned long long*>(rank.differences.data());
      STRAIT_TRY(cuda::check(cudaMemsetAsync(counter, 0, sizeof(*counter), rank.stream), "cannot check"));
      count_differences<T><<<256, 256, 0, rank.stream>>>(
          reinterpret_cast<const T*>(rank.expected.data() + input_offset),
          reinterpret_cast<const T*>(rank.output.data() + output_offset), count, guard_bytes - 16, counter);
      STRAIT_TRY(cuda::check(cudaGetLastError(), "cannot check"));
      unsigned long long wrong = 0;
      STRAIT_TRY(cuda::check(cudaMemcpyAsync(&wrong, counter, sizeof(wrong), cudaMemcpyDeviceToHost, rank.stream),
                             "cannot check"));
      STRAIT_TRY(cuda::check(cudaStreamSynchronize(rank.stream), "cannot check"));
      total += wrong;
    }
    return total;
  }

  Status synchronize() {
    for (GpuRank& rank : ranks) STRAIT_TRY(cuda::check(cudaStreamSynchronize(rank.stream), "a GPU failed"));
    return {};
  }

  std::vector<cudaStream_t> streams() const {
    std::vector<cudaStream_t> all;
    for (const GpuRank& rank : ranks) all.push_back(rank.stream);
    return all;
  }

  std::vector<GpuRank> ranks;

 private:
  GpuRanks() = default;
  static Status copy_in(const cuda::DeviceMemory& to, const void* from, std::size_t bytes) {
    return cuda::check(cudaMemcpy(to.data(), from, bytes, cudaMemcpyHostToDevice), "cannot upload inputs");
  }
  std::size_t most_bytes_ = 0;
};

}  // namespace strait::perf
