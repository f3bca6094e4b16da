#include "builder.hpp"

/// For machines whose ranks exchange data through host memory: every byte is written there once and read by all ranks
/// that need it. Writing, adding and reading have separate lanes, so that links carry data in both directions at the
/// same time. The owner of a chunk takes the sum in rank order, rounded once.
namespace strait::algorithms {
namespace {

constexpr std::uint16_t results = 1;

bool supports(const PlanRequest& request) {
  const bool known = request.collective == Collective::all_reduce || request.collective == Collective::all_gather ||
                     request.collective == Collective::reduce_scatter;
  return known && (request.multicast || request.ranks == 1);
}

RankPlan build(const PlanRequest& request, std::uint32_t rank) {
  const bool sums = is_reduction(request.collective);
  const bool gathers = request.collective != Collective::reduce_scatter;
  PlanBuilder p(request, rank, request.collective == Collective::all_reduce ? request.ranks : 1);
  if (sums) {
    for (const std::uint32_t owner : p.others()) p.copy(input(owner), p.send({owner}, input(owner)));
    p.next_lane();
  }
  const Operands destinations =
      gathers ? joined({{output(rank)}, p.send(p.others(), output(rank), results)}) : Operands{output(0)};
  if (sums)
    p.reduce_final(p.contributions(input(rank)), destinations);
  else
    p.copy(input(0), destinations);
  p.next_lane();
  if (gathers) p.gather_outputs(results);
  return p.finish();
}

}  // namespace

extern constinit const Algorithm staged{"staged", "folklore: two hops through host memory", supports, build,
                                        Numerics::rank_order};

}  // namespace strait::algorithms
