#pragma once

#include <cstdint>

#include "base/reduce_spec.hpp"
#ifndef STRAIT_EMULATED_GPU
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

/// Conversions of single elements to and from accumulators, with GPU instructions.
namespace strait::kernels {

#ifndef STRAIT_EMULATED_GPU
/// Uses the GPU's conversion instructions where they exist. Payloads of NaN may differ from those of the specification
/// in between; what is finally stored (narrow()) is the canonical NaN.
template <DataType type>
__device__ __forceinline__ spec::AccumulatorType<type> load_element(const spec::ElementType<type>& element) {
  if constexpr (type == DataType::bfloat16) {
    return __uint_as_float(std::uint32_t{element.bits} << 16);
  } else if constexpr (type == DataType::float16) {
    return __half2float(__ushort_as_half(element.bits));
  } else {
    return spec::load<type>(element);
  }
}
template <DataType type>
__device__ __forceinline__ spec::ElementType<type> store_element(const spec::AccumulatorType<type>& value) {
  spec::ElementType<type> element;
  if constexpr (type == DataType::bfloat16) {
    element.bits =
        isnan(value) ? FloatFormat<BFloat16>::canonical_nan : __bfloat16_as_ushort(__float2bfloat16_rn(value));
  } else if constexpr (type == DataType::float16) {
    element.bits = isnan(value) ? FloatFormat<Float16>::canonical_nan : __half_as_ushort(__float2half_rn(value));
  } else {
    element = spec::store<type>(value);
  }
  return element;
}
#else
template <DataType type>
auto load_element(const spec::ElementType<type>& element) {
  return spec::load<type>(element);
}
template <DataType type>
auto store_element(const spec::AccumulatorType<type>& value) {
  return spec::store<type>(value);
}
#endif

}  // namespace strait::kernels
