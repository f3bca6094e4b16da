#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strait {

/// Element types. The values are those of straitDataType_t, which are the same as NCCL's.
enum class DataType : std::uint8_t {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  float8_e4m3 = 10,
  float8_e5m2 = 11,
};
inline constexpr int data_type_count = 12;

/// Reductions. The values of the first five are those of straitRedOp_t, which are the same as NCCL's.
enum class ReduceOp : std::uint8_t { sum = 0, prod = 1, max = 2, min = 3, avg = 4, premul_sum = 5 };
inline constexpr int reduce_op_count = 6;

/// The scalar by which a rank multiplies its contribution to a premul_sum; used by host and device code.
struct PremulScalar {
  /// An element of the call's type in the low bytes or, if `is_address`, the address of an element, aligned to its
  /// size.
  std::uint64_t bits = 0;
  bool is_address = false;  ///< the element is in memory, and is read when the call runs
  /// Returns a pointer to the element. If `is_address`, only code that can access that memory (host or device) may
  /// dereference it.
  const void* element() const { return is_address ? reinterpret_cast<const void*>(bits) : &bits; }
};

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  all_to_all_v,
  broadcast,
  reduce,
  gather,
  scatter,
  send_recv,  ///< a group of sends and receives
  barrier,
};
inline constexpr int collective_count = 11;

constexpr std::size_t size_bytes(DataType type) {
  constexpr std::uint8_t sizes[data_type_count] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[static_cast<int>(type)];
}

constexpr bool is_floating(DataType type) { return type >= DataType::float16; }

constexpr bool is_reduction(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

constexpr bool has_root(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather || c == Collective::scatter;
}

/// Whether every order and grouping of the operands gives the same bits: integers wrap (and an average divides only
/// once, at the end), and min and max select one of the operands.
constexpr bool is_order_free(DataType type, ReduceOp op) {
  return !is_floating(type) || op == ReduceOp::min || op == ReduceOp::max;
}

std::string_view name(DataType type);          ///< "float32"
std::string_view name(ReduceOp op);            ///< "sum"
std::string_view name(Collective collective);  ///< "all-reduce"

}  // namespace strait
