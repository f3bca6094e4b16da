#pragma once

#include <cstdint>

#include "base/float_formats.hpp"
#include "base/types.hpp"

/// What every reduction computes, element by element: the specification in docs/numerics.md as code, for host and CUDA
/// device code. The vector kernels, the CUDA kernels and the tests' reference all agree with it bit by bit.
///
/// A reduction is: acc = load(first), then acc = combine(acc, load(next)) in the listed order, then `finish`, then
/// `store`, which rounds.
namespace strait::spec {

/// The C++ type of an element, and the type in which partial results are accumulated.
template <DataType type>
struct Element;
#define STRAIT_ELEMENT(data_type, element, accumulator) \
  template <>                                           \
  struct Element<DataType::data_type> {                 \
    using Type = element;                               \
    using Accumulator = accumulator;                    \
  }
STRAIT_ELEMENT(int8, std::int8_t, std::int8_t);
STRAIT_ELEMENT(uint8, std::uint8_t, std::uint8_t);
STRAIT_ELEMENT(int32, std::int32_t, std::int32_t);
STRAIT_ELEMENT(uint32, std::uint32_t, std::uint32_t);
STRAIT_ELEMENT(int64, std::int64_t, std::int64_t);
STRAIT_ELEMENT(uint64, std::uint64_t, std::uint64_t);
STRAIT_ELEMENT(float16, Float16, float);
STRAIT_ELEMENT(float32, float, float);
STRAIT_ELEMENT(float64, double, double);
STRAIT_ELEMENT(bfloat16, BFloat16, float);
STRAIT_ELEMENT(float8_e4m3, Float8E4M3, float);
STRAIT_ELEMENT(float8_e5m2, Float8E5M2, float);
#undef STRAIT_ELEMENT

/// Calls `function.template operator()<type>()` with `type` as a compile-time constant.
template <class F>
constexpr decltype(auto) visit(DataType type, F&& function) {
  switch (type) {
    case DataType::int8:
      return function.template operator()<DataType::int8>();
    case DataType::uint8:
      return function.template operator()<DataType::uint8>();
    case DataType::int32:
      return function.template operator()<DataType::int32>();
    case DataType::uint32:
      return function.template operator()<DataType::uint32>();
    case DataType::int64:
      return function.template operator()<DataType::int64>();
    case DataType::uint64:
      return function.template operator()<DataType::uint64>();
    case DataType::float16:
      return function.template operator()<DataType::float16>();
    case DataType::float32:
      return function.template operator()<DataType::float32>();
    case DataType::float64:
      return function.template operator()<DataType::float64>();
    case DataType::bfloat16:
      return function.template operator()<DataType::bfloat16>();
    case DataType::float8_e4m3:
      return function.template operator()<DataType::float8_e4m3>();
    case DataType::float8_e5m2:
      break;
  }
  return function.template operator()<DataType::float8_e5m2>();
}

namespace detail {
template <class T>
struct Unsigned {
  using Type = T;  // already unsigned
};
template <>
struct Unsigned<std::int8_t> {
  using Type = std::uint8_t;
};
template <>
struct Unsigned<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Unsigned<std::int64_t> {
  using Type = std::uint64_t;
};

/// Integers wrap around, as in two's complement.
template <class T>
STRAIT_HOST_DEVICE constexpr T add(T a, T b) {
  using U = typename Unsigned<T>::Type;
  return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
}
template <class T>
STRAIT_HOST_DEVICE constexpr T multiply(T a, T b) {
  using U = typename Unsigned<T>::Type;
  return static_cast<T>(static_cast<U>(static_cast<U>(a) * static_cast<U>(b)));
}

// Device compilers contract a * b + c into a fused multiply-add unless these intrinsics are used; host code is built
// with -ffp-contract=off.
#if defined(__CUDA_ARCH__)
STRAIT_HOST_DEVICE inline float add(float a, float b) { return __fadd_rn(a, b); }
STRAIT_HOST_DEVICE inline float multiply(float a, float b) { return __fmul_rn(a, b); }
STRAIT_HOST_DEVICE inline float divide(float a, float b) { return __fdiv_rn(a, b); }
STRAIT_HOST_DEVICE inline double add(double a, double b) { return __dadd_rn(a, b); }
STRAIT_HOST_DEVICE inline double multiply(double a, double b) { return __dmul_rn(a, b); }
STRAIT_HOST_DEVICE inline double divide(double a, double b) { return __ddiv_rn(a, b); }
#else
STRAIT_HOST_DEVICE constexpr float add(float a, float b) { return a + b; }
STRAIT_HOST_DEVICE constexpr float multiply(float a, float b) { return a * b; }
STRAIT_HOST_DEVICE constexpr float divide(float a, float b) { return a / b; }
STRAIT_HOST_DEVICE constexpr double add(double a, double b) { return a + b; }
STRAIT_HOST_DEVICE constexpr double multiply(double a, double b) { return a * b; }
STRAIT_HOST_DEVICE constexpr double divide(double a, double b) { return a / b; }
#endif

template <class T>
inline constexpr bool is_floating_accumulator = false;
template <>
inline constexpr bool is_floating_accumulator<float> = true;
template <>
inline constexpr bool is_floating_accumulator<double> = true;

/// Returns NaN if either operand is NaN. -0 is less than +0, so that the result does not depend on the order of
/// operands.
template <class T>
STRAIT_HOST_DEVICE constexpr T min(T a, T b) {
  if constexpr (is_floating_accumulator<T>) {
    if (is_nan(a) || is_nan(b)) return canonical_nan<T>();
    if (a == b) return from_bits<T>(to_bits(a) | to_bits(b));
  }
  return b < a ? b : a;
}
template <class T>
STRAIT_HOST_DEVICE constexpr T max(T a, T b) {
  if constexpr (is_floating_accumulator<T>) {
    if (is_nan(a) || is_nan(b)) return canonical_nan<T>();
    if (a == b) return from_bits<T>(to_bits(a) & to_bits(b));
  }
  return a < b ? b : a;
}
#if defined(__CUDA_ARCH__)
// One instruction each. The NaN they return may be any NaN; the function that stores the result makes it canonical.
STRAIT_HOST_DEVICE inline float min(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}
STRAIT_HOST_DEVICE inline float max(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}
#endif
}  // namespace detail

template <DataType type>
using ElementType = typename Element<type>::Type;
template <DataType type>
using AccumulatorType = typename Element<type>::Accumulator;

/// Returns the exact value of an element in the accumulation type.
template <DataType type>
STRAIT_HOST_DEVICE constexpr AccumulatorType<type> load(ElementType<type> element) {
  if constexpr (sizeof(ElementType<type>) < sizeof(AccumulatorType<type>)) {
    return to_float(element);
  } else {
    return element;
  }
}

template <ReduceOp op, class Accumulator>
STRAIT_HOST_DEVICE constexpr Accumulator combine(Accumulator a, Accumulator b) {
  if constexpr (op == ReduceOp::prod) return detail::multiply(a, b);
  if constexpr (op == ReduceOp::min) return detail::min(a, b);
  if constexpr (op == ReduceOp::max) return detail::max(a, b);
  if constexpr (op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum) return detail::add(a, b);
}

/// Ends a reduction that holds the contributions of all `ranks`: an average divides here (integers truncate toward
/// zero), other operations return `sum` unchanged.
template <ReduceOp op, class Accumulator>
STRAIT_HOST_DEVICE constexpr Accumulator finish(Accumulator sum, std::uint32_t ranks) {
  if constexpr (op != ReduceOp::avg) {
    return sum;
  } else if constexpr (detail::is_floating_accumulator<Accumulator>) {
    return detail::divide(sum, static_cast<Accumulator>(ranks));
  } else if constexpr (Accumulator(-1) < Accumulator(0)) {
    return static_cast<Accumulator>(static_cast<std::int64_t>(sum) / static_cast<std::int64_t>(ranks));
  } else {
    return static_cast<Accumulator>(static_cast<std::uint64_t>(sum) / ranks);
  }
}

/// Returns what is stored of a result that is not rounded: the accumulator itself, with NaN made canonical.
template <class Accumulator>
STRAIT_HOST_DEVICE constexpr Accumulator store_wide(Accumulator value) {
  if constexpr (detail::is_floating_accumulator<Accumulator>) {
    if (is_nan(value)) return canonical_nan<Accumulator>();
  }
  return value;
}

/// Rounds a result to its element type, the only rounding of a reduction. NaN becomes canonical.
template <DataType type>
STRAIT_HOST_DEVICE constexpr ElementType<type> store(AccumulatorType<type> value) {
  if constexpr (sizeof(ElementType<type>) < sizeof(AccumulatorType<type>)) {
    return from_float<ElementType<type>>(value);
  } else {
    return store_wide(value);
  }
}

/// Returns a rank's contribution to a premul_sum: the element times the rank's own scalar, rounded to the element type
/// before it is added.
template <DataType type>
STRAIT_HOST_DEVICE constexpr ElementType<type> premultiplied(ElementType<type> element, ElementType<type> scalar) {
  return store<type>(detail::multiply(load<type>(element), load<type>(scalar)));
}

}  // namespace strait::spec
