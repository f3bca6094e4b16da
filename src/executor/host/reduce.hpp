#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/types.hpp"

/// Reductions and copies of host memory at the speed of the memory: each source is read once, each destination written
/// once. The bits are those of base/reduce_spec.hpp, whatever the instruction set, alignment and count.
namespace strait {

/// Instruction sets, each including the ones before it. `portable` is what the compiler targets by default.
enum class Simd : std::uint8_t { portable, avx2, avx512 };
inline constexpr int simd_count = 3;

/// The best that this processor (and this build) has; every lesser one works too.
Simd best_simd();
std::string_view name(Simd simd);                           ///< "avx2"
std::optional<Simd> simd_from_name(std::string_view name);  ///< the inverse of name()

/// What one step reads: elements, or accumulators where `wide` (float for the 8- and 16-bit floats; the same as
/// elements for other types).
struct ReduceSource {
  const void* pointer = nullptr;
  bool wide = false;
};

/// What one step writes. `streaming` writes around the caches, where the pointer's alignment allows (to that of the
/// element): for data that nobody on this processor reads soon.
struct ReduceDestination {
  void* pointer = nullptr;
  bool wide = false;
  bool streaming = false;
};

/// destinations = reduce(sources), `count` elements each, at any alignment. A destination may be exactly one of the
/// sources (of the same width); other overlaps are not allowed. At least one source. premul_sum adds what premultiply()
/// has made of the inputs.
struct ReduceCall {
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::span<const ReduceSource> sources = {};
  std::span<const ReduceDestination> destinations = {};
  std::size_t count = 0;
  bool final = false;       ///< the result holds every rank's contribution: avg divides by `ranks`
  std::uint32_t ranks = 1;  ///< read for avg
};

/// `simd` must not exceed best_simd(). Works in the default floating-point environment (round to nearest, no flush to
/// zero), whatever the calling thread has set, and restores the thread's own.
void reduce(const ReduceCall& call, Simd simd = best_simd());

/// What a rank contributes to a premul_sum: destination[i] = source[i] * *scalar, rounded to the element type; `count`
/// elements of `type`, as the scalar is. Like reduce() otherwise.
void premultiply(DataType type, void* destination, const void* source, const void* scalar, std::size_t count,
                 Simd simd = best_simd());

/// Copies `size_bytes` to every destination (`wide` is ignored), reading the source from memory once. A destination may
/// be exactly the source; other overlaps are not allowed.
void copy(std::span<const ReduceDestination> destinations, const void* source, std::size_t size_bytes,
          Simd simd = best_simd());

}  // namespace strait
