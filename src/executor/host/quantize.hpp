#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "executor/host/reduce.hpp"

/// The wire formats of base/wire_format.hpp on host memory, at the speed of vector instructions. The bits are those of
/// that header, whatever the instruction set, alignment and count. Like reduce(), these work in the default
/// floating-point environment and restore the thread's own.
namespace strait {

/// The bytes of an encoded run of blocks.
constexpr std::size_t encoded_bytes(WireFormat format, std::size_t blocks) {
  return blocks * wire::block_bytes(format);
}

/// An encoded run, or the blocks of one from `first_block` on. The memory is aligned to 4 bytes, holds
/// encoded_bytes(format, run_blocks), and belongs to the caller.
struct EncodedRun {
  WireFormat format = WireFormat::int8;  ///< not off
  std::byte* memory = nullptr;
  std::size_t run_blocks = 0;
  std::size_t first_block = 0;
};

/// Encodes `count` elements of a wire type, from the first to the last block that they reach into. With a residual
/// (`count` floats; nullptr: none), what is encoded is element + residual, and the residual becomes what that lost, but
/// in blocks that become NaN, whose residual stays.
void encode(const EncodedRun& to, DataType type, const void* elements, std::size_t count, float* residual = nullptr,
            Simd simd = best_simd());

/// The values of `count` elements, each rounded to its type.
void decode(DataType type, void* elements, std::size_t count, const EncodedRun& from, Simd simd = best_simd());

/// sums[i] += value[i], `count` of them; or sums[i] = value[i] where `first`.
void accumulate(float* sums, std::size_t count, const EncodedRun& from, bool first, Simd simd = best_simd());

/// What the owner of a slice does in an all-reduce, in one pass over encoded runs of `run_blocks` blocks, of which each
/// source has `runs` one after the other: result = encode(sum of sources), in their order.
struct Recoding {
  WireFormat format = WireFormat::int8;  ///< not off
  std::span<const std::byte* const> sources = {};
  std::byte* result = nullptr;  ///< none of the sources. All are aligned to 4 bytes
  std::size_t run_blocks = 0;
  std::size_t runs = 0;
  std::uint32_t averaged = 0;  ///< sums are divided by this; 0: they are not
};
void recode(const Recoding& call, Simd simd = best_simd());

}  // namespace strait
