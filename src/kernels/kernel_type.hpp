#pragma once

#include <cstdint>

#include "base/types.hpp"

namespace strait::kernels {

/// The types for which reduction kernels are compiled: one kernel for each of the types that nearly all programs use,
/// and one for all other types, which learns the type from the call. Kernels for every type would be twice the code,
/// which takes memory on every GPU and most of the time to make a communicator.
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

/// Returns a type whose sums have the same bits. Types that can share it get the same type (unsigned integers share
/// that of signed ones).
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

/// Returns whether an operation only adds up contributions and at most multiplies the sum. Averages over a power of two
/// ranks qualify: multiplying by the exact reciprocal gives the same bits as dividing.
constexpr bool adds_up(DataType type, ReduceOp op, std::uint32_t averaged) {
  const bool is_power = averaged != 0 && (averaged & (averaged - 1)) == 0;
  return op == ReduceOp::sum || (op == ReduceOp::avg && is_floating(type) && is_power);
}

/// Stands for any of KernelType::others where the arithmetic of a kernel expects a type.
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
