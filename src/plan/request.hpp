#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "plan/plan.hpp"

namespace strait {

/// Which ranks are close to one another: the only topology an algorithm sees. `levels[0]` is the finest: ranks with the
/// same number share an island (NVLink bridge, NUMA node); the last level is the host. Empty: all ranks alike.
struct Shape {
  std::vector<std::vector<std::uint32_t>> levels;  ///< levels[l][rank] = island number at level l

  friend bool operator==(const Shape&, const Shape&) = default;
};

/// One send or receive of a group, as this rank posted it, in the order of posting.
struct PointToPoint {
  bool sends = false;
  std::uint32_t peer = 0;
};

/// What a plan is asked for. The same request on every rank (but for `in_place` and `point_to_point`) gives plans that
/// fit.
struct PlanRequest {
  Collective collective = Collective::all_reduce;
  std::uint32_t ranks = 1;
  std::uint32_t root = 0;
  Shape shape;
  bool order_free = false;   ///< any order of operands gives the same bits (is_order_free(type, op))
  bool multicast = true;     ///< a link may have several readers
  bool peer_memory = false;  ///< ranks can address one another's buffers
  bool in_place = false;     ///< this rank's call is in place; may differ between ranks, their plans fit all the same
  std::uint32_t lanes = 1;   ///< how many lanes the algorithm may spread over; it may use fewer
  std::vector<PointToPoint> point_to_point;  ///< send_recv only
};

/// How often, and in which order, a result of this algorithm is rounded. A class, not a speed: selection by time never
/// crosses it (docs/numerics.md).
enum class Numerics : std::uint8_t {
  rank_order,  ///< contributions are added in rank order and rounded once: equal to a plain loop
  rounded,     ///< partial sums are rounded at intermediate hops, or added in another order; same on all ranks and runs
};

/// A catalogue entry: an algorithm is a pure function from request and rank to plan.
struct Algorithm {
  std::string_view name;
  std::string_view source;  ///< paper, standard or "folklore"
  bool (*supports)(const PlanRequest&);
  RankPlan (*build)(const PlanRequest&, std::uint32_t rank);
  Numerics (*numerics)(const PlanRequest&);
};

/// Every algorithm, in a fixed order (ties in selection go to the earlier).
std::span<const Algorithm> catalogue();
const Algorithm* find_algorithm(std::string_view name);
/// All names in that order, for messages: "one_hop, two_hop, ...".
std::string algorithm_names();

/// What an algorithm asks for beyond the collective and the number of ranks.
enum class Asks : std::uint8_t { nothing, peer_memory, islands, something_else };
/// The least of it.
Asks asks_for(const Algorithm& algorithm, const PlanRequest& request);

/// The plans of all ranks.
Plan build_all(const Algorithm& algorithm, const PlanRequest& request);

}  // namespace strait
