#pragma once

#include <cstddef>
#include <cstdint>

#include "base/wire_format.hpp"

/// The interface between quantize.cpp and the kernels of one instruction set. It consists of plain data, for the reason
/// given in reduce_kernels.hpp: the kernels' files are compiled for newer processors.
namespace strait::host {

struct EncodeCall {
  const void* elements;
  float* residual;  ///< nullptr: none
  std::size_t count;
  std::uint8_t* payload;
  float* scales;
};

struct DecodeCall {
  void* elements;  ///< for `set` and `add`: floats
  std::size_t count;
  const std::uint8_t* payload;
  const float* scales;
};

/// `runs` consecutive runs of `run_blocks` blocks each, in every source and in the result.
struct RecodeCall {
  const std::uint8_t* const* sources;
  std::size_t source_count;
  std::uint8_t* result;
  std::size_t run_blocks;
  std::size_t runs;
  std::uint32_t divisor;  ///< divisor of the sums; 0: none
};

using EncodeKernel = void (*)(const EncodeCall&);
using DecodeKernel = void (*)(const DecodeCall&);
using RecodeKernel = void (*)(const RecodeCall&);

inline constexpr int wire_type_count = 3;
/// Returns the index of a wire type in the tables.
constexpr int wire_type_index(DataType type) {
  return type == DataType::float32 ? 0 : type == DataType::bfloat16 ? 1 : 2;
}

/// Kernels by WireFormat (the entries of `off` are empty).
struct QuantizeTable {
  EncodeKernel encode[wire_format_count][wire_type_count];
  DecodeKernel decode[wire_format_count][wire_type_count];
  DecodeKernel set[wire_format_count];
  DecodeKernel add[wire_format_count];
  RecodeKernel recode[wire_format_count];
};

extern const QuantizeTable portable_quantize_kernels;
#if defined(__x86_64__)
extern const QuantizeTable avx2_quantize_kernels;
extern const QuantizeTable avx512_quantize_kernels;
#endif

}  // namespace strait::host
