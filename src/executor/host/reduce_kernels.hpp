#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "executor/host/reduce.hpp"

/// The interface between reduce.cpp and the kernels of one instruction set.
namespace strait::host {

/// A ReduceCall as plain data. The kernels' files are compiled for newer processors, so they must not instantiate
/// inline functions of the standard library: the linker might use their copy of one in the whole program.
struct KernelCall {
  const ReduceSource* sources;
  std::size_t source_count;
  const ReduceDestination* destinations;
  std::size_t destination_count;
  std::size_t count;
  std::uint32_t divisor;  ///< 0: no division
};

/// How accumulators are combined. The rest of a ReduceOp is expressed by KernelCall.
enum class Combine : std::uint8_t { sum, prod, max, min };
inline constexpr int combine_count = 4;

using ReduceKernel = void (*)(const KernelCall&);
/// Copies with non-temporal stores, without the final fence.
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
