#pragma once

#include <cstddef>
#include <cstdint>

#include "base/wire_format.hpp"

/// Between quantize.cpp and the kernels of one instruction set. As in reduce_kernels.hpp, data are plain: the kernels'
/// files are compiled for newer processors.
namespace strait::host {

struct EncodeCall {
  const void* elements;
  float* residual;  ///< nullptr: none
  std::size_t count;
  std::uint8_t* payload;
  float* scales;
};

struct DecodeCall {
  void* elements;  ///< of accumulate: floats
  std::size_t count;
  const std::uint8_t* payload;
  const float* scales;
};

/// Runs of `run_blocks` blocks each, one after the other: as many of each source, and of the result.
struct RecodeCall {
  const std::uint8_t* const* sources;
  std::size_t source_count;
  std::uint8_t* result;
  std::size_t run_blocks;
  std::size_t runs;
  std::uint32_t divisor;  ///< of sums; 0: none
};

using EncodeKernel = void (*)(const EncodeCall&);
using DecodeKernel = void (*)(const DecodeCall&);
using RecodeKernel = void (*)(const RecodeCall&);

inline constexpr int wire_type_count = 3;
/// Where a wire type stands in the tables.
constexpr int wire_type_index(DataType type) {
  return type == DataType::float32 ? 0 : type == DataType::bfloat16 ? 1 : 2;
}

/// By WireFormat (there are none for off).
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
