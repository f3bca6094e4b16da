#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/request.hpp"

/// The requests for which plans are proven.
namespace strait::test {

/// Which ranks call in place.
enum class Placement { none, all, odd };

/// Returns islands of these sizes, finest level first: {2, 4} makes pairs, four of which are an island of the next
/// level.
Shape shape_of(std::uint32_t ranks, const std::vector<std::uint32_t>& sizes);

/// Returns requests with every root, lane count and shape (among them islands of random, unequal sizes), with and
/// without multicast and access to peers' memory; fewer for many ranks. Not for send_recv, see random_group().
std::vector<PlanRequest> requests(Collective collective, std::uint32_t ranks);
std::vector<Placement> placements(Collective collective);
std::string text(const PlanRequest& request, Placement placement);

/// Returns the plans of all ranks, and which ranks call in place.
std::pair<std::vector<RankPlan>, std::vector<bool>> build(const Algorithm& algorithm, PlanRequest request,
                                                          Placement placement);

/// Returns what every rank posts, in matching order: `messages` sends between random ranks, including to oneself.
std::vector<std::vector<PointToPoint>> random_group(std::uint32_t ranks, std::uint32_t messages, std::uint32_t seed);

}  // namespace strait::test
