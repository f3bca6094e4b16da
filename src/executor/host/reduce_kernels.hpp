#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "executor/host/reduce.hpp"

/// Between reduce.cpp and the kernels of one instruction set.
namespace strait::host {

/// A ReduceCall in plain data. The kernels' files are compiled for newer processors, so that they must not instantiate
/// inline functions of the standard library: the linker might keep their copy of one for the whole program.
struct KernelCall {
  const ReduceSource* sources;
  std::size_t source_count;
  const ReduceDestination* destinations;
  std::size_t destination_count;
  std::size_t count;
  std::uint32_t divisor;  ///< 0: no division
};

/// How accumulators are combined; the other parts of a ReduceOp are in KernelCall.
enum class Combine : std::uint8_t { sum, prod, max, min };
inline constexpr int combine_count = 4;

using ReduceKernel = void (*)(const KernelCall&);
/// Writes around the caches, without the closing fence.
using StreamKernel = void (*)(void* destination, const void* source, std::size_t size_bytes);

struct KernelTable {
  ReduceKernel reduce[data_type_count][combine_count];
  StreamKernel stream;
};

extern const KernelTable portable_kernels;
#if defined(__x86_64__)
extern const KernelTable avx2_kernels;
extern const KernelTable avx512_kernels;
#endif

}  // namespace strait::host
