#pragma once

#include <optional>
#include <string>
#include <utility>

#include "plan/proof.hpp"

namespace strait::proof {

/// What a proof finds is an error of the plan, not of the call.
inline tl::unexpected<Error> wrong(std::string message) { return fail(Code::internal_error, std::move(message)); }

/// Names the elements of a chunk by who counts them: chunks with equal lengths are equally long, whatever the count.
struct Length {
  std::uint32_t owner = 0;
  std::uint32_t index = 0;

  friend bool operator==(const Length&, const Length&) = default;
};

/// What follows from an operation's collective and options, apart from what its steps do.
class Operation {
 public:
  Operation(const Plan& plan, const ProofOptions& options) : plan_(plan), options_(options) {}

  const Plan& plan() const { return plan_; }
  const RankPlan& of(std::uint32_t rank) const { return plan_[rank]; }
  const ProofOptions& options() const { return options_; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(plan_.size()); }
  bool in_place(std::uint32_t rank) const { return rank < options_.in_place.size() && options_.in_place[rank]; }
  /// Whether the caller gives the count of every chunk by itself.
  bool has_own_counts() const;

  std::uint32_t chunks(std::uint32_t rank, Buffer buffer) const;
  /// Of a chunk of the input or output.
  Length length(std::uint32_t rank, Buffer buffer, std::uint32_t chunk) const;
  /// How many slices of such a chunk are not empty.
  std::uint32_t slices(Length length) const;
  /// How often a lane runs.
  std::uint32_t slices(std::uint32_t rank, const Lane& lane) const;
  /// Where in memory a chunk lies: in place, input and output share chunks.
  std::pair<Buffer, std::uint32_t> place(std::uint32_t rank, Buffer buffer, std::uint32_t chunk) const;
  /// Which rank's input chunk must be at (rank, output chunk); for sums, which chunk of every rank's input.
  std::pair<std::uint32_t, std::uint32_t> origin(std::uint32_t rank, std::uint32_t chunk) const;
  /// "all-reduce 'ring', rank 1, lane 0, step 2 [output[1] <- ...]".
  std::string where(std::uint32_t rank, std::size_t lane, std::size_t step) const;

 private:
  /// The matching send (rank, index among its sends) of a rank's receive.
  std::pair<std::uint32_t, std::uint32_t> matching_send(std::uint32_t rank, std::uint32_t receive) const;

  const Plan& plan_;
  const ProofOptions& options_;
};

/// What can be told without running: indices in range, well-formed steps, both ends of links and signals alike and used
/// equally often, each by one lane.
Status check_structure(const Operation& operation);

}  // namespace strait::proof
