#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "plan/plan.hpp"
#include "plan/request.hpp"

/// Proofs of plans by symbolic execution of all ranks.
///
/// Every end of a link or a signal belongs to one lane, and a lane waits only for its next operand. So plans are Kahn
/// networks: every interleaving of the lanes executes the same steps with the same values. One execution therefore
/// stands for all, and a plan that does not deadlock with FIFOs of some depth does not deadlock with deeper ones.
/// Vector clocks track "happens before" along lanes, links (publish before acquire) and signals. A full FIFO also
/// delays its writer, but this is deliberately not counted as an order, so what is proven at one depth holds at all
/// depths.
namespace strait {

struct ProofOptions {
  std::uint32_t depth = 2;  ///< slots of each link
  /// How many slices the lanes run for; if the caller gives the counts, the largest number for any lane.
  std::uint32_t slices = 1;
  std::vector<bool> in_place = {};                             ///< by rank; empty: no rank is in place
  Numerics numerics = Numerics::rounded;                       ///< promised numerics of sums
  std::vector<std::vector<PointToPoint>> point_to_point = {};  ///< by rank, what was posted; send_recv only
};

/// Returns success if all of the following hold with these options, and otherwise the first violation. The plans of all
/// ranks fit together and never deadlock. Each output receives exactly what its collective specifies; a sum has each
/// contribution once, in the promised order, equal on all ranks, and the steps marked `final` are the right ones.
/// Nothing is read before it is written, or overwritten before it has been read. There is no race between lanes or
/// ranks. A peer's buffers are touched only while that peer is inside the operation.
Status prove(const Plan& plan, const ProofOptions& options);

struct ProofOperation {
  Plan plan;
  ProofOptions options;
};
/// Proves operations that run back to back on one communicator. They share links, and a rank starts the next operation
/// when all its lanes have finished the previous one. The links have the smallest depth that any of the operations has.
Status prove(std::span<const ProofOperation> operations);

/// The number of chunks that a rank writes into links or peers' buffers (a link counts once, however many readers it
/// has), and that it reads from them; to be compared with the textbook count of an algorithm.
struct Traffic {
  std::uint64_t sent_chunks = 0;
  std::uint64_t received_chunks = 0;
};
Traffic traffic_of(const RankPlan& plan);

}  // namespace strait
