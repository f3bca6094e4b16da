#include "builder.hpp"

/// Direct algorithms: every byte goes straight from the rank that has it to the ranks that need it, and every sum is
/// taken in rank order and rounded once.
namespace strait::algorithms {
namespace {

bool one_hop_supports(const PlanRequest& request) {
  using enum Collective;
  return is_one_of({all_reduce, all_gather, reduce, broadcast, gather}, request.collective);
}

void one_hop_to_root(PlanBuilder& p, const PlanRequest& request, std::uint32_t rank) {
  const Ranks root_only{request.root};
  if (rank != request.root) {
    p.copy(input(0), p.send(root_only, input(0)));
  } else if (request.collective == Collective::reduce) {
    p.reduce_final(p.contributions(input(0)), {output(0)});
  } else {
    p.copy(input(0), output(rank));
    for (const std::uint32_t from : p.others()) p.copy(p.receive(from, output(from)), output(from));
  }
}

RankPlan build_one_hop(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank);
  switch (request.collective) {
    case Collective::all_reduce: {
      if (request.ranks > 1) p.copy(input(0), p.send(p.others(), input(0)));
      Operands sources;
      for (const std::uint32_t from : p.everyone())
        sources.push_back(from == rank ? input(0) : p.receive(from, p.all_readers(from), input(0)));
      p.reduce_final(sources, {output(0)});
      break;
    }
    case Collective::all_gather:
      p.copy(input(0), joined({{output(rank)}, p.send(p.others(), input(0))}));
      p.gather_outputs();
      break;
    case Collective::broadcast:
      if (rank == request.root)
        p.copy(input(0), joined({{output(0)}, p.send(p.others(), input(0))}));
      else
        p.copy(p.receive(request.root, p.all_readers(request.root), output(0)), output(0));
      break;
    default:
      one_hop_to_root(p, request, rank);
  }
  return p.finish();
}

bool two_hop_supports(const PlanRequest& request) { return request.collective == Collective::all_reduce; }

/// Rank c owns chunk c: all ranks send it their contributions, and it adds them up and sends the sum to all.
RankPlan build_two_hop(const PlanRequest& request, std::uint32_t rank) {
  constexpr std::uint16_t sums = 1;
  PlanBuilder p(request, rank, request.ranks);
  for (const std::uint32_t owner : p.others()) p.copy(input(owner), p.send({owner}, input(owner)));
  const Operands everywhere = joined({{output(rank)}, p.send(p.others(), output(rank), sums)});
  p.reduce_final(p.contributions(input(rank)), everywhere);
  p.gather_outputs(sums);
  return p.finish();
}

bool direct_supports(const PlanRequest& request) {
  using enum Collective;
  return is_one_of({reduce_scatter, all_to_all, scatter}, request.collective);
}

/// All blocks are sent before any is received, so an in-place all-to-all overwrites no block that is still to be sent.
RankPlan build_direct(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank);
  const bool has_blocks = request.collective != Collective::scatter || rank == request.root;
  if (has_blocks)
    for (const std::uint32_t to : p.others()) p.copy(input(to), p.send({to}, input(to)));
  if (request.collective == Collective::reduce_scatter) {
    p.reduce_final(p.contributions(input(rank)), {output(0)});
  } else if (request.collective == Collective::all_to_all) {
    p.copy(input(rank), output(rank));
    for (std::uint32_t distance = 1; distance < request.ranks; ++distance) {
      const std::uint32_t from = p.around(-static_cast<std::int64_t>(distance));
      p.copy(p.receive(from, output(from)), output(from));
    }
  } else if (rank == request.root) {
    p.copy(input(rank), output(0));
  } else {
    p.copy(p.receive(request.root, output(0)), output(0));
  }
  return p.finish();
}

}  // namespace

extern constinit const Algorithm one_hop{"one_hop", "folklore", one_hop_supports, build_one_hop, Numerics::rank_order};
extern constinit const Algorithm two_hop{"two_hop", "folklore: reduce-scatter and all-gather, both direct",
                                         two_hop_supports, build_two_hop, Numerics::rank_order};
extern constinit const Algorithm direct{"direct", "folklore", direct_supports, build_direct, Numerics::rank_order};

}  // namespace strait::algorithms
