#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "executor/host/reduce.hpp"

/// The wire formats of base/wire_format.hpp in host memory, with vector instructions. The bits are those of that
/// header, whatever the instruction set, alignment and count. Like reduce(), these functions run in the default
/// floating-point environment and restore the thread's own.
namespace strait {

/// Returns the size in bytes of an encoded run of blocks.
constexpr std::size_t encoded_bytes(WireFormat format, std::size_t blocks) {
  return blocks * wire::block_bytes(format);
}

/// An encoded run, or its blocks from `first_block` on. The memory belongs to the caller, is aligned to 4 bytes and
/// holds encoded_bytes(format, run_blocks).
struct EncodedRun {
  WireFormat format = WireFormat::int8;  ///< must not be off
  std::byte* memory = nullptr;
  std::size_t run_blocks = 0;
  std::size_t first_block = 0;
};

/// Encodes `count` elements of a wire type into as many blocks as they need. With a `residual` (`count` floats),
/// encodes element + residual instead and stores the encoding error in the residual, except in blocks that become NaN,
/// whose residual stays unchanged.
void encode(const EncodedRun& to, DataType type, const void* elements, std::size_t count, float* residual = nullptr,
            Simd simd = best_simd());

/// Decodes `count` elements, each rounded to its type.
void decode(DataType type, void* elements, std::size_t count, const EncodedRun& from, Simd simd = best_simd());

/// Adds `count` decoded values to `sums`, or overwrites `sums` with them if `first`.
void accumulate(float* sums, std::size_t count, const EncodedRun& from, bool first, Simd simd = best_simd());

/// The owner's work on its slice in an all-reduce, in one pass: result = encode(sum of the decoded sources, in their
/// order). Each source, and the result, consists of `runs` consecutive encoded runs of `run_blocks` blocks.
struct Recoding {
  WireFormat format = WireFormat::int8;  ///< must not be off
  std::span<const std::byte* const> sources = {};
  std::byte* result = nullptr;  ///< must not be one of the sources. All are aligned to 4 bytes
  std::size_t run_blocks = 0;
  std::size_t runs = 0;
  std::uint32_t averaged = 0;  ///< divisor of the sums; 0: none
};
void recode(const Recoding& call, Simd simd = best_simd());

}  // namespace strait
