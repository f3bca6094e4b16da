#pragma once

#include <optional>
#include <string>
#include <utility>

#include "plan/proof.hpp"

namespace strait::proof {

/// Makes an error. Violations that a proof finds are errors of the plan, not of the call, hence the code.
inline tl::unexpected<Error> wrong(std::string message) { return fail(Code::internal_error, std::move(message)); }

/// A symbolic chunk length, identified by the rank that counts it and an index. Chunks with equal identities have equal
/// lengths, whatever the count.
struct Length {
  std::uint32_t owner = 0;
  std::uint32_t index = 0;

  friend bool operator==(const Length&, const Length&) = default;
};

/// Properties of an operation that follow from its collective and options alone, without running its steps.
class Operation {
 public:
  Operation(const Plan& plan, const ProofOptions& options) : plan_(plan), options_(options) {}

  const Plan& plan() const { return plan_; }
  const RankPlan& of(std::uint32_t rank) const { return plan_[rank]; }
  const ProofOptions& options() const { return options_; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(plan_.size()); }
  bool in_place(std::uint32_t rank) const { return rank < options_.in_place.size() && options_.in_place[rank]; }
  /// Returns whether the caller gives the count of every chunk separately.
  bool has_own_counts() const;

  std::uint32_t chunks(std::uint32_t rank, Buffer buffer) const;
  /// Returns the length of a chunk of the input or output.
  Length length(std::uint32_t rank, Buffer buffer, std::uint32_t chunk) const;
  /// Returns the number of slices of a chunk of that length that are not empty.
  std::uint32_t slices(Length length) const;
  /// Returns for how many slices a lane runs.
  std::uint32_t slices(std::uint32_t rank, const Lane& lane) const;
  /// Returns where a chunk is in memory. If the rank is in place, input and output share chunks.
  std::pair<Buffer, std::uint32_t> place(std::uint32_t rank, Buffer buffer, std::uint32_t chunk) const;
  /// Returns the (rank, input chunk) whose contents must end up in an output chunk of `rank`. For sums the chunk
  /// applies to the inputs of all ranks.
  std::pair<std::uint32_t, std::uint32_t> origin(std::uint32_t rank, std::uint32_t chunk) const;
  /// Describes a step: "all-reduce 'ring', rank 1, lane 0, step 2 [output[1] <- ...]".
  std::string where(std::uint32_t rank, std::size_t lane, std::size_t step) const;

 private:
  /// Returns the send (rank, index among its sends) that matches a rank's receive.
  std::pair<std::uint32_t, std::uint32_t> matching_send(std::uint32_t rank, std::uint32_t receive) const;

  const Plan& plan_;
  const ProofOptions& options_;
};

/// Checks what can be checked without running: indices are in range, steps are well formed, both ends of links and
/// signals agree and are used equally often, and each end is used by one lane only.
Status check_structure(const Operation& operation);

}  // namespace strait::proof
