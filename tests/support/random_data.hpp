#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/hash.hpp"
#include "base/reduce_spec.hpp"
#include "base/types.hpp"

/// Random elements that cover the corner cases of the types. The same seed gives the same elements on every machine.
namespace strait::testing {

using Bytes = std::vector<std::byte>;

namespace detail {
/// The kind of value at an index is the same for all seeds, so that values of the same kind meet when ranks' data are
/// added: cancellation, sums of subnormals, zeros of both signs; and only some results are NaN.
template <class E>
typename FloatFormat<E>::Bits random_float_bits(std::uint64_t index, std::uint64_t seed) {
  using Format = FloatFormat<E>;
  using Bits = typename Format::Bits;
  constexpr Bits one = static_cast<Bits>(Bits{1} << Format::mantissa_bits);  // the lowest bit of the exponent
  constexpr Bits largest = static_cast<Bits>(Format::infinity - 1);
  const std::uint64_t shared = mix(index), own = mix(shared ^ mix(seed));
  const Bits sign = (own & 1) != 0 ? Format::sign_mask : Bits{0};
  const Bits magnitude = static_cast<Bits>(static_cast<Bits>(mix(own)) & Format::magnitude_mask);
  const auto finite = [&](Bits m) { return static_cast<Bits>(sign | std::min<Bits>(m, largest)); };
  const auto moderate = [&](std::uint64_t hash) {  // within a few powers of two of 1
    const Bits exponents = std::min<Bits>(8, static_cast<Bits>(Format::bias));
    const Bits lowest = static_cast<Bits>((Format::bias - exponents / 2) * one);
    return static_cast<Bits>(lowest + static_cast<Bits>(hash >> 8) % static_cast<Bits>(exponents * one));
  };
  switch (shared % 16) {
    case 0:
      return finite(static_cast<Bits>(magnitude % one));  // subnormals
    case 1:
      return finite(static_cast<Bits>(magnitude % (4 * one)));  // around the smallest normal
    case 2:
      return sign;  // zeros
    case 3:
      return finite(static_cast<Bits>(largest - magnitude % (2 * one)));  // near overflow
    case 4:
      return finite(moderate(mix(shared)));  // cancels exactly
    case 5:
      return finite(static_cast<Bits>(moderate(mix(shared)) + own / 2 % 2));  // cancels except for the last bit
    case 6:
      return finite(magnitude);  // any finite number
    case 7:                      // sometimes infinity or NaN
      if (own / 2 % 8 == 0) return static_cast<Bits>(sign | Format::infinity);
      if (own / 2 % 8 == 1) return static_cast<Bits>(sign | std::max<Bits>(magnitude, Format::first_nan));
      return finite(magnitude);
    default:
      return finite(moderate(own));
  }
}
}  // namespace detail

/// Fills `data` with elements of `type`. Floats: numbers of moderate size, the full range, subnormals, zeros of both
/// signs, near-overflow, infinities, NaN with random payloads, and pairs that cancel between buffers of different
/// seeds. Integers: any bits, and the extremes.
inline void fill_random(std::span<std::byte> data, DataType type, std::uint64_t seed) {
  spec::visit(type, [&]<DataType t>() {
    using Element = spec::ElementType<t>;
    for (std::size_t i = 0; i < data.size() / sizeof(Element); ++i) {
      std::uint64_t bits = 0;
      if constexpr (is_floating(t)) {
        bits = detail::random_float_bits<Element>(i, seed);
      } else {
        bits = mix(mix(i) ^ mix(seed));
        constexpr std::uint64_t top = std::uint64_t{1} << (8 * sizeof(Element) - 1);
        if (mix(i) % 16 == 0) bits = top - (bits & 1);  // the largest and smallest signed
        if (mix(i) % 16 == 1) bits = 0 - (bits & 1);    // 0 and all ones
      }
      std::memcpy(data.data() + i * sizeof(Element), &bits, sizeof(Element));  // little-endian
    }
  });
}

inline Bytes random_elements(DataType type, std::size_t count, std::uint64_t seed) {
  Bytes data(count * size_bytes(type));
  fill_random(data, type, seed);
  return data;
}

}  // namespace strait::testing
