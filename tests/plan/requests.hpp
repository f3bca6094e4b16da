#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/request.hpp"

/// The requests for which plans are proven.
namespace strait::test {

/// Which ranks call in place.
enum class Placement { none, all, odd };

/// Islands of these sizes, finest first: {2, 4} are pairs, four of which make an island of the next level.
Shape shape_of(std::uint32_t ranks, const std::vector<std::uint32_t>& sizes);

/// A request for every root, lane count, shape (islands of random, unequal sizes among them), and with or without
/// multicast and peers' memory; fewer for many ranks. Not for send_recv, see random_groups().
std::vector<PlanRequest> requests(Collective collective, std::uint32_t ranks);
std::vector<Placement> placements(Collective collective);
std::string text(const PlanRequest& request, Placement placement);

/// The plans of all ranks, and which ranks call in place.
std::pair<std::vector<RankPlan>, std::vector<bool>> build(const Algorithm& algorithm, PlanRequest request,
                                                          Placement placement);

/// What every rank posts, so that all fits: `messages` sends between random ranks, self included.
std::vector<std::vector<PointToPoint>> random_group(std::uint32_t ranks, std::uint32_t messages, std::uint32_t seed);

}  // namespace strait::test
