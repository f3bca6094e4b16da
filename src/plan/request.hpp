#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "plan/plan.hpp"

namespace strait {

/// Which ranks are close to one another: the only topology that an algorithm sees. Ranks with the same number at a
/// level share an island. `levels[0]` is the finest level (NVLink bridge, NUMA node), the last level is the host.
/// Empty: all pairs of ranks are equally close.
struct Shape {
  std::vector<std::vector<std::uint32_t>> levels;  ///< levels[l][rank] = island number at level l

  friend bool operator==(const Shape&, const Shape&) = default;
};

/// One send or receive of a group, as this rank posted it, in the order of posting.
struct PointToPoint {
  bool sends = false;
  std::uint32_t peer = 0;
};

/// The input of an algorithm. If all ranks make the same request (`in_place` and `point_to_point` may differ), their
/// plans fit together.
struct PlanRequest {
  Collective collective = Collective::all_reduce;
  std::uint32_t ranks = 1;
  std::uint32_t root = 0;
  Shape shape;
  bool multicast = true;                     ///< whether a link may have several readers
  bool peer_memory = false;                  ///< whether ranks can address one another's buffers
  bool in_place = false;                     ///< whether this rank's call is in place; may differ between ranks
  std::uint32_t lanes = 1;                   ///< number of lanes that the algorithm may use; it may use fewer
  std::vector<PointToPoint> point_to_point;  ///< send_recv only
};

/// How often, and in which order, an algorithm rounds its results. Selection by speed never replaces an algorithm of
/// one class by one of the other (docs/numerics.md).
enum class Numerics : std::uint8_t {
  rank_order,  ///< contributions are added in rank order and rounded once: equal to a plain loop
  rounded,     ///< partial sums are rounded at intermediate hops, or added in another order; same on all ranks and runs
};

/// A catalogue entry. An algorithm is a pure function from request and rank to plan.
struct Algorithm {
  std::string_view name;
  std::string_view source;  ///< paper, standard or "folklore"
  bool (*supports)(const PlanRequest&);
  RankPlan (*build_unnamed)(const PlanRequest&, std::uint32_t rank);  ///< for build(), which names the plan
  Numerics sums = Numerics::rounded;  ///< numerics of its reductions; other collectives round nothing

  RankPlan build(const PlanRequest& request, std::uint32_t rank) const;
};

/// Returns all algorithms in a fixed order (in selection, the earlier one wins a tie).
std::span<const Algorithm> catalogue();
/// Returns nullptr if there is no algorithm of that name.
const Algorithm* find_algorithm(std::string_view name);
/// Returns all names in that order, for messages: "one_hop, two_hop, ...".
std::string algorithm_names();

/// What an algorithm requires beyond a collective and a number of ranks.
enum class Asks : std::uint8_t { nothing, peer_memory, islands, something_else };
/// Returns the smallest such requirement under which the algorithm supports the request.
Asks asks_for(const Algorithm& algorithm, const PlanRequest& request);

/// Returns the plans of all ranks.
Plan build_all(const Algorithm& algorithm, const PlanRequest& request);

}  // namespace strait
