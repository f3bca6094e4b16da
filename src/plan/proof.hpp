#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "plan/plan.hpp"
#include "plan/request.hpp"

/// Proofs of plans by symbolic execution of all ranks.
///
/// Every end of a link or a signal belongs to one lane, and a lane waits for nothing but its next operand: plans are
/// Kahn networks. Therefore every interleaving of the lanes does the same steps with the same values, one execution
/// stands for all, and a plan that does not block with FIFOs of some depth does not block with deeper ones.
/// "Happens before" is followed by vector clocks over lane order, links (publish before acquire) and signals. That a
/// full FIFO also delays its writer is deliberately not counted, so what is proven at one depth holds at all.
namespace strait {

struct ProofOptions {
  std::uint32_t depth = 2;   ///< slots of every link
  std::uint32_t slices = 1;  ///< how often the lanes run; the most that any lane runs where the caller gives the counts
  std::vector<bool> in_place = {};                             ///< by rank; empty: no rank
  Numerics numerics = Numerics::rounded;                       ///< what is promised of sums
  std::vector<std::vector<PointToPoint>> point_to_point = {};  ///< by rank; of send_recv, what was posted
};

/// Success if, with these options, the plans of all ranks fit together, never block for ever, give each output exactly
/// what its collective says (sums: each contribution once, in the promised order, alike on all ranks, the mark
/// `final` right), read nothing before it is written, overwrite nothing that is still to be read, have no race between
/// lanes or ranks, and touch a peer's buffers only while it is inside the operation. Else the first violation.
Status prove(const Plan& plan, const ProofOptions& options);

struct ProofOperation {
  Plan plan;
  ProofOptions options;
};
/// The same for operations back to back on one communicator: they share links, a rank starts the next operation when
/// all its lanes have finished the one before. The links have the smallest depth that any operation names.
Status prove(std::span<const ProofOperation> operations);

/// What rank `rank` puts into links or peers' buffers, in chunks (a link counts once, whatever its readers), and what
/// it takes out of them. Comparing with the textbook count of an algorithm.
struct Traffic {
  std::uint64_t sent_chunks = 0;
  std::uint64_t received_chunks = 0;
};
Traffic traffic_of(const RankPlan& plan);

}  // namespace strait
