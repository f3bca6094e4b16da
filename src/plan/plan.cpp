#include "plan/plan.hpp"

#include "plan/request.hpp"

namespace strait {

std::uint32_t RankPlan::input_blocks() const {
  switch (collective) {
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return ranks;
    case Collective::scatter:
      return rank == root ? ranks : 0;
    case Collective::broadcast:
      return rank == root ? 1 : 0;
    case Collective::barrier:
      return 0;
    default:
      return 1;
  }
}

std::uint32_t RankPlan::output_blocks() const {
  switch (collective) {
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return ranks;
    case Collective::gather:
      return rank == root ? ranks : 0;
    case Collective::reduce:
      return rank == root ? 1 : 0;
    case Collective::barrier:
      return 0;
    default:
      return 1;
  }
}

std::size_t RankPlan::steps() const {
  std::size_t steps = 0;
  for (const Lane& lane : lanes) steps += lane.steps.size();
  return steps;
}

RankPlan Algorithm::build(const PlanRequest& request, std::uint32_t rank) const {
  RankPlan plan = build_unnamed(request, rank);
  plan.algorithm = name;
  return plan;
}

Plan build_all(const Algorithm& algorithm, const PlanRequest& request) {
  Plan plan;
  plan.reserve(request.ranks);
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank) plan.push_back(algorithm.build(request, rank));
  return plan;
}

}  // namespace strait
