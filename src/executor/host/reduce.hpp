#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/types.hpp"

/// Reductions and copies in host memory at the speed of the memory: each source is read once, each destination is
/// written once. The bits are those of base/reduce_spec.hpp, whatever the instruction set, alignment and count.
namespace strait {

/// Instruction sets, each of which includes the previous ones. `portable` is the compiler's default target.
enum class Simd : std::uint8_t { portable, avx2, avx512 };
inline constexpr int simd_count = 3;

/// Returns the best instruction set of this processor and this build; all lesser ones work, too.
Simd best_simd();
std::string_view name(Simd simd);  ///< "avx2"

/// A source of a reduction: elements, or accumulators if `wide` (float for 8- and 16-bit floats; for all other types
/// the same as elements).
struct ReduceSource {
  const void* pointer = nullptr;
  bool wide = false;
};

/// A destination of a reduction. `streaming` uses non-temporal stores as far as the pointer's alignment allows (at
/// least that of the element), for data that this processor does not read soon.
struct ReduceDestination {
  void* pointer = nullptr;
  bool streaming = false;
};

/// destinations = reduce(sources), for `count` elements at any alignment. A destination may be exactly one of the
/// sources (if that is not wide); other overlaps are not allowed. There is at least one source. A premul_sum adds
/// sources that premultiply() has already multiplied.
struct ReduceCall {
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::span<const ReduceSource> sources = {};
  std::span<const ReduceDestination> destinations = {};
  std::size_t count = 0;
  bool final = false;       ///< whether the result contains every rank's contribution; then avg divides by `ranks`
  std::uint32_t ranks = 1;  ///< used by avg only
};

/// Executes the call. `simd` must not exceed best_simd(). Runs in the default floating-point environment (round to
/// nearest, no flush to zero), whatever the calling thread has set, and restores the thread's own afterwards.
void reduce(const ReduceCall& call, Simd simd = best_simd());

/// Computes what a rank contributes to a premul_sum: destination[i] = source[i] * *scalar for `count` elements, rounded
/// to the element type, which is also that of the scalar. Otherwise like reduce().
void premultiply(DataType type, void* destination, const void* source, const void* scalar, std::size_t count,
                 Simd simd = best_simd());

/// Copies `size_bytes` to every destination, reading the source from memory once. A destination may be exactly the
/// source; other overlaps are not allowed.
void copy(std::span<const ReduceDestination> destinations, const void* source, std::size_t size_bytes,
          Simd simd = best_simd());

}  // namespace strait
