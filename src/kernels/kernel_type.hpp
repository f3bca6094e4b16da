#pragma once

#include <cstdint>

#include "base/types.hpp"

namespace strait::kernels {

/// What kernels that add up are compiled for: each of the types that nearly all programs use most, and all others
/// together, which learn from the call which one it is of. Kernels for every type would be twice the code, which
/// takes memory of every GPU and most of the time that it takes to make a communicator.
enum class KernelType : std::uint8_t { float16, bfloat16, float32, others };
inline constexpr KernelType all_kernel_types[] = {KernelType::float16, KernelType::bfloat16, KernelType::float32,
                                                  KernelType::others};

constexpr KernelType kernel_type(DataType type) {
  switch (type) {
    case DataType::float16:
      return KernelType::float16;
    case DataType::bfloat16:
      return KernelType::bfloat16;
    case DataType::float32:
      return KernelType::float32;
    default:
      return KernelType::others;
  }
}

/// A type whose sums have the same bits, alike for two types where it can be.
constexpr DataType sum_type(DataType type) {
  switch (type) {
    case DataType::uint8:
      return DataType::int8;
    case DataType::uint32:
      return DataType::int32;
    case DataType::uint64:
      return DataType::int64;
    default:
      return type;
  }
}

/// Whether an operation adds up contributions as they are, and at most multiplies the sum: averages of a power of two
/// ranks are products with its exact reciprocal, the same bits as of the division.
constexpr bool adds_up(DataType type, ReduceOp op, std::uint32_t averaged) {
  const bool is_power = averaged != 0 && (averaged & (averaged - 1)) == 0;
  return op == ReduceOp::sum || (op == ReduceOp::avg && is_floating(type) && is_power);
}

/// In the arithmetic of a kernel, in the place of a type: any of KernelType::others.
inline constexpr auto other_types = static_cast<DataType>(data_type_count);
constexpr DataType type_of(KernelType kind) {
  switch (kind) {
    case KernelType::float16:
      return DataType::float16;
    case KernelType::bfloat16:
      return DataType::bfloat16;
    case KernelType::float32:
      return DataType::float32;
    case KernelType::others:
      break;
  }
  return other_types;
}

}  // namespace strait::kernels
