#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "calls/call.hpp"
#include "executor/host/quantize.hpp"

namespace strait {

/// A collective of host ranks in a wire format. Encoded runs travel as bytes, by the plans of all-to-all and
/// all-gather, which only copy. This class encodes, says which exchange the caller is to make, and processes what it
/// has brought. One call at a time; the memory for the runs is kept for the next one.
///
/// An all-reduce has two hops. Every rank encodes its input as one run per rank, its slices, and sends each slice to
/// its owner; the owner adds the slices in rank order in float32, encodes the sum, and sends it to all. All ranks,
/// including the owner, take the result from that encoded sum, so that all have the same bits.
class QuantizedCall {
 public:
  /// `averaged`: the number of contributions by which an average divides.
  QuantizedCall(std::uint32_t rank, std::uint32_t ranks, std::uint32_t averaged)
      : rank_(rank), ranks_(ranks), averaged_(averaged) {}

  /// Encodes what this rank sends, and returns the exchange to be made. `call` must have a wire format and a count. May
  /// throw bad_alloc.
  Call begin(const Call& call, Simd simd);
  /// To be called after each exchange. Returns the next one; nothing: the call is complete and its result in the
  /// receive buffer.
  std::optional<Call> next();
  /// Returns whether a call has begun and next() is to follow its exchange.
  bool in_progress() const { return in_progress_; }
  const Call& call() const { return call_; }
  /// Ends a call that has failed.
  void cancel() { in_progress_ = false; }

 private:
  EncodedRun run_at(std::vector<std::byte>& memory, std::uint32_t rank);
  /// The elements of the whole buffer that the run of a rank holds.
  struct Slice {
    std::size_t first;
    std::size_t count;
  };
  Slice slice(std::uint32_t rank) const;
  Call exchange(Collective collective, const void* send, void* receive) const;
  void decode_outputs(std::vector<std::byte>& memory);
  template <class Use>
  void sum_own_slice(Use&& use);

  std::uint32_t rank_;
  std::uint32_t ranks_;
  std::uint32_t averaged_;
  bool in_progress_ = false;
  bool second_hop_ = false;
  Call call_;
  Simd simd_ = Simd::portable;
  std::size_t run_blocks_ = 0;
  std::vector<std::byte> sent_, received_;  ///< a run per rank; as large as for the largest call so far
  std::vector<float> sums_;
};

}  // namespace strait
