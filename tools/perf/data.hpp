#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "perf/geometry.hpp"

/// Inputs that any rank can compute for every other rank, and the results that must come of them, bit by bit.
namespace strait::perf {

/// One verified call: all ranks make it from the same values but for `rank`.
struct Operation {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t ranks = 1;
  std::uint32_t root = 0;
  std::uint32_t rank = 0;
  bool in_place = false;
  WireFormat wire = WireFormat::off;
  bool exact = false;  ///< floats to be reduced are small whole numbers: any order of additions gives the same bits
  std::uint64_t seed = 0;
  std::size_t bytes = 0;           ///< as the user asked: geometry() makes counts of it
  std::size_t extra_elements = 0;  ///< in the call's count, beyond that

  Geometry geometry(std::uint32_t of_rank) const {
    return perf::geometry(collective, bytes, type, ranks, of_rank, extra_elements);
  }
};

/// A piece of what a buffer holds: a pattern that no call has written, elements of a rank's input, the same after their
/// way in the call's wire format, or their reduction over all ranks in rank order. The blocks of a wire format start
/// where the segment does.
struct Segment {
  enum class Kind : std::uint8_t { poison, input, carried, reduced };
  std::size_t offset = 0;  ///< elements from the start of the buffer
  std::size_t count = 0;
  Kind kind = Kind::poison;
  std::uint32_t rank = 0;  ///< whose input (input, carried)
  std::size_t source = 0;  ///< first element of the inputs

  friend bool operator==(const Segment&, const Segment&) = default;
};
using Contents = std::vector<Segment>;  ///< ascending and without gaps

/// Elements behind each buffer that no call may write: they are poison, and checked.
inline constexpr std::size_t guard_elements = 64;

/// What the send buffer holds before the call, and must hold after it (out of place).
Contents send_contents(const Operation& operation);
/// What the receive buffer (in place: the one buffer) holds before the call, and must hold after it.
Contents receive_contents_before(const Operation& operation);
Contents receive_contents_after(const Operation& operation);

/// From the start of the buffer to the end of the contents.
std::size_t extent_bytes(const Operation& operation, const Contents& contents);

// What is random takes longer to make than to move: by so many threads, the caller's among them, if it is long.
/// Writes contents into a buffer.
void write(const Operation& operation, const Contents& contents, void* buffer, std::size_t threads = 1);
/// The number of elements of a buffer that differ from what it must hold.
std::size_t count_wrong(const Operation& operation, const Contents& contents, const void* buffer,
                        std::size_t threads = 1);

/// What a rank multiplies its contribution to a premul_sum by: an element, in the low bytes. Of floats to be reduced
/// exactly 1 or -1.
std::uint64_t premul_scalar(const Operation& operation, std::uint32_t rank);

/// Elements first ... first + count - 1 of a rank's input. Integers and a quarter of the floating-point elements are
/// any bits; the other floating-point elements lie between 1/4 and 4, so that sums round (not where they are exact).
/// With a wire format most of its blocks have none of any bits: one can make its block NaN.
void generate_input(const Operation& operation, std::uint32_t rank, std::size_t first, std::size_t count, void* out);

}  // namespace strait::perf
