#pragma once

#include <cstdint>
#include <type_traits>

#include "base/reduce_spec.hpp"
#include "kernels/byte_words.cuh"
#include "kernels/elements.cuh"
#include "kernels/kernel_type.hpp"

/// The arithmetic of base/reduce_spec.hpp on 16 bytes of elements at a time, with GPU instructions.
namespace strait::kernels {

template <DataType type>
inline constexpr int elements_per_granule = static_cast<int>(16 / sizeof(spec::ElementType<type>));

/// Number of elements in `Bits`, which contains nothing else.
template <DataType type, class Bits>
inline constexpr int elements_of = static_cast<int>(sizeof(Bits) / sizeof(spec::ElementType<type>));

template <DataType type, class Bits>
__device__ __forceinline__ void widen(const Bits& bits,
                                      spec::AccumulatorType<type> (&values)[elements_of<type, Bits>]) {
  constexpr int count = elements_of<type, Bits>;
  if constexpr (is_float8<type>) {
    static_assert(count % 4 == 0);
    struct Words {
      std::uint32_t values[count / 4];
    };
    const Words words = __builtin_bit_cast(Words, bits);
#pragma unroll
    for (int w = 0; w < count / 4; ++w) {
      float four[4];
      widen_bytes<type>(words.values[w], four);
#pragma unroll
      for (int e = 0; e < 4; ++e) values[4 * w + e] = four[e];
    }
  } else {
    struct Elements {
      spec::ElementType<type> values[count];
    };
    const Elements elements = __builtin_bit_cast(Elements, bits);
#pragma unroll
    for (int e = 0; e < count; ++e) values[e] = load_element<type>(elements.values[e]);
  }
}

/// Rounds each value once, and makes NaN canonical.
template <DataType type, class Bits>
__device__ __forceinline__ Bits narrow(const spec::AccumulatorType<type> (&values)[elements_of<type, Bits>]) {
  constexpr int count = elements_of<type, Bits>;
  if constexpr (is_float8<type>) {
    static_assert(count % 4 == 0);
    struct Words {
      std::uint32_t values[count / 4];
    } words;
#pragma unroll
    for (int w = 0; w < count / 4; ++w)
      words.values[w] = round_bytes<type>(values[4 * w], values[4 * w + 1], values[4 * w + 2], values[4 * w + 3]);
    return __builtin_bit_cast(Bits, words);
  } else {
    struct Elements {
      spec::ElementType<type> values[count];
    } elements;
#pragma unroll
    for (int e = 0; e < count; ++e) elements.values[e] = store_element<type>(values[e]);
    return __builtin_bit_cast(Bits, elements);
  }
}

/// Completes the average of `averaged` contributions. For a power of two, floats are multiplied by its reciprocal and
/// integers are shifted, which gives the same bits in less time.
template <class Accumulator, int count>
__device__ __forceinline__ void divide(Accumulator (&sums)[count], std::uint32_t averaged) {
  const bool is_power = __popc(averaged) == 1;
  if constexpr (spec::detail::is_floating_accumulator<Accumulator>) {
    const auto reciprocal = Accumulator{1} / static_cast<Accumulator>(averaged);
#pragma unroll
    for (Accumulator& sum : sums)
      sum = is_power ? spec::detail::multiply(sum, reciprocal) : spec::finish<ReduceOp::avg>(sum, averaged);
  } else {
    const auto shifted = [=](Accumulator sum) {
      const int places = __ffs(static_cast<int>(averaged)) - 1;
      if constexpr (std::is_unsigned_v<Accumulator>)
        return static_cast<Accumulator>(sum >> places);
      else
        return static_cast<Accumulator>((std::int64_t{sum} + (sum < 0 ? averaged - 1 : 0)) >> places);
    };
#pragma unroll
    for (Accumulator& sum : sums) sum = is_power ? shifted(sum) : spec::finish<ReduceOp::avg>(sum, averaged);
  }
}

/// As narrow(), for floats none of which is NaN.
template <DataType type, class Bits16>
__device__ __forceinline__ Bits16 narrow_numbers(const float (&values)[elements_per_granule<type>]) {
#ifndef STRAIT_EMULATED_GPU
  struct Words {
    std::uint32_t values[4];
  } words;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (type == DataType::bfloat16) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * w], values[2 * w + 1]);
      words.values[w] = *reinterpret_cast<const std::uint32_t*>(&pair);
    } else if constexpr (type == DataType::float16) {
      const __half2 pair = __floats2half2_rn(values[2 * w], values[2 * w + 1]);
      words.values[w] = *reinterpret_cast<const std::uint32_t*>(&pair);
    } else {
      words.values[w] = __float_as_uint(values[w]);
    }
  }
  return __builtin_bit_cast(Bits16, words);
#else
  return narrow<type, Bits16>(values);
#endif
}

/// The operation, where the kernel does not know it at compile time.
struct Operation {
  ReduceOp op;
  DataType type;
  std::uint32_t averaged;  ///< number of contributions, by which an average divides
  PremulScalar premul_scalar;
};

template <DataType type>
__device__ __forceinline__ spec::ElementType<type> element_of(const PremulScalar& scalar) {
  if (scalar.is_address) return *reinterpret_cast<const spec::ElementType<type>*>(scalar.bits);
  spec::ElementType<type> element;
  memcpy(&element, &scalar.bits, sizeof element);
  return element;
}

template <class Bits16>
__device__ Bits16 contribution_of_others(const Bits16& bits, const Operation& operation);  // defined in other_types.cuh

/// Returns what a rank contributes of its input: the input as it is, or, for premul_sum, multiplied by this rank's
/// scalar.
template <DataType type, bool sum_only, class Bits16>
__device__ __forceinline__ Bits16 contribution(const Bits16& bits, const Operation& operation) {
  if (sum_only || operation.op != ReduceOp::premul_sum) return bits;
  if constexpr (type == other_types) {
    return contribution_of_others(bits, operation);
  } else {
    constexpr int count = elements_per_granule<type>;
    const auto scalar = spec::load<type>(element_of<type>(operation.premul_scalar));
    spec::AccumulatorType<type> values[count];
    widen<type>(bits, values);
#pragma unroll
    for (int e = 0; e < count; ++e) values[e] = spec::detail::multiply(values[e], scalar);
    return narrow<type, Bits16>(values);
  }
}

/// A reduction in progress over one granule. `sum_only`: only for ReduceOp::sum, as most calls are. For other_types see
/// other_types.cuh.
template <DataType type, bool sum_only, class Bits16>
class Reduction {
  using Accumulator = spec::AccumulatorType<type>;
  static constexpr int count = elements_per_granule<type>;

 public:
  __device__ __forceinline__ void first(const Bits16& bits, const Operation& /*operation*/) {
    widen<type>(bits, values_);
  }
  __device__ __forceinline__ void next(const Bits16& bits, const Operation& operation) {
    Accumulator others[count];
    widen<type>(bits, others);
    if constexpr (sum_only) {
      combine<ReduceOp::sum>(others);
    } else {
      switch (operation.op) {
        case ReduceOp::prod:
          return combine<ReduceOp::prod>(others);
        case ReduceOp::min:
          return combine<ReduceOp::min>(others);
        case ReduceOp::max:
          return combine<ReduceOp::max>(others);
        default:
          return combine<ReduceOp::sum>(others);
      }
    }
  }
  __device__ __forceinline__ Bits16 result(const Operation& operation) {
    if constexpr (!sum_only) {
      if (operation.op == ReduceOp::avg) divide(values_, operation.averaged);
    }
    if constexpr (sum_only && (type == DataType::bfloat16 || type == DataType::float16)) {
      bool has_nan = false;
#pragma unroll
      for (int e = 0; e < count; ++e) has_nan |= values_[e] != values_[e];
      if (!has_nan) return narrow_numbers<type, Bits16>(values_);
    }
    return narrow<type, Bits16>(values_);
  }
  /// Returns what changes nothing when it is added to a sum: for floats minus zero, because plus zero would turn minus
  /// zero into plus zero.
  static __device__ __forceinline__ Bits16 neutral() {
    using Element = spec::ElementType<type>;
    constexpr std::uint64_t sign = std::is_integral_v<Element> ? 0 : std::uint64_t{1} << (8 * sizeof(Element) - 1);
    constexpr std::uint64_t word = sizeof(Element) == 8   ? sign
                                   : sizeof(Element) == 4 ? sign * 0x0000000100000001
                                   : sizeof(Element) == 2 ? sign * 0x0001000100010001
                                                          : sign * 0x0101010101010101;
    return {word, word};
  }

 private:
  template <ReduceOp op>
  __device__ __forceinline__ void combine(const Accumulator (&others)[count]) {
#pragma unroll
    for (int e = 0; e < count; ++e) values_[e] = spec::combine<op>(values_[e], others[e]);
  }
  Accumulator values_[count];
};

}  // namespace strait::kernels
