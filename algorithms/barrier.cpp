#include "builder.hpp"

/// A dissemination barrier: after the round with distance d, a rank knows that the 2d - 1 ranks before it have entered.
namespace strait::algorithms {
namespace {

bool supports(const PlanRequest& request) { return request.collective == Collective::barrier; }

RankPlan build(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank);
  std::uint16_t round = 0;
  for (std::uint32_t distance = 1; distance < request.ranks; distance *= 2, ++round) {
    p.signal({p.around(distance)}, round);
    p.wait({p.around(-static_cast<std::int64_t>(distance))}, round);
  }
  return p.finish();
}

}  // namespace

extern constinit const Algorithm barrier{
    "barrier", "Hensgen, Finkel and Manber 1988, Two algorithms for barrier synchronization", supports, build};

}  // namespace strait::algorithms
