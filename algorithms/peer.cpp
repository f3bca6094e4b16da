#include "builder.hpp"

/// Direct algorithms that access peers' buffers: one copy, whereas links need two. A rank signals that it has entered,
/// so that its buffers may be accessed, and leaves when all ranks that access them are done.
namespace strait::algorithms {
namespace {

constexpr std::uint16_t entered = 0;
constexpr std::uint16_t done = 1;
constexpr std::uint16_t reduced = 2;

/// Returns every rank's contribution to `chunk` of the input, in rank order.
Operands contributions(const PlanBuilder& p, std::uint32_t chunk) {
  Operands sources;
  for (const std::uint32_t from : p.everyone()) sources.push_back(p.at(from, input(chunk)));
  return sources;
}

bool has_peers(const PlanRequest& request) { return request.peer_memory || request.ranks == 1; }

bool pull_supports(const PlanRequest& request) {
  using enum Collective;
  return !is_one_of({all_to_all_v, send_recv, barrier}, request.collective) && has_peers(request);
}

/// The collectives without a root. In place, data that peers read is overwritten only after they are done.
RankPlan pull_everywhere(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank);
  const bool gathers = request.collective == Collective::all_gather;
  const bool exchanges = request.collective == Collective::all_to_all;
  const bool sums_all = request.collective == Collective::all_reduce;
  p.signal(p.others(), entered);
  p.wait(p.others(), entered);
  if (sums_all) p.reduce_final(contributions(p, 0), {request.in_place ? scratch(0) : output(0)});
  if (request.collective == Collective::reduce_scatter) p.reduce_final(contributions(p, rank), {output(0)});
  if ((gathers || exchanges) && !request.in_place) p.copy(input(exchanges ? rank : 0), output(rank));
  if (gathers)
    for (const std::uint32_t from : p.others()) p.copy(p.at(from, input(0)), output(from));
  if (exchanges)
    for (const std::uint32_t from : p.others())
      p.copy(p.at(from, input(rank)), request.in_place ? scratch(from) : output(from));
  p.signal(p.others(), done);
  p.wait(p.others(), done);
  if (sums_all && request.in_place) p.copy(scratch(0), output(0));
  if (exchanges && request.in_place)
    for (const std::uint32_t from : p.others()) p.copy(scratch(from), output(from));
  return p.finish();
}

/// Reduce and gather: the root reads the buffers of all others.
RankPlan pull_to_root(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank);
  if (rank != request.root) {
    p.signal({request.root}, entered);
    p.wait({request.root}, done);
    return p.finish();
  }
  if (request.collective == Collective::gather && !request.in_place) p.copy(input(0), output(rank));
  p.wait(p.others(), entered);
  if (request.collective == Collective::reduce) p.reduce_final(contributions(p, 0), {output(0)});
  if (request.collective == Collective::gather)
    for (const std::uint32_t from : p.others()) p.copy(p.at(from, input(0)), output(from));
  p.signal(p.others(), done);
  return p.finish();
}

/// Broadcast and scatter: all others read the root's buffer.
RankPlan pull_from_root(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank);
  const std::uint32_t chunk = request.collective == Collective::scatter ? rank : 0;
  if (rank != request.root) {
    p.wait({request.root}, entered);
    p.copy(p.at(request.root, input(chunk)), output(0));
    p.signal({request.root}, done);
    return p.finish();
  }
  p.signal(p.others(), entered);
  if (!request.in_place) p.copy(input(chunk), output(0));
  p.wait(p.others(), done);
  return p.finish();
}

RankPlan build_pull(const PlanRequest& request, std::uint32_t rank) {
  switch (request.collective) {
    case Collective::reduce:
    case Collective::gather:
      return pull_to_root(request, rank);
    case Collective::broadcast:
    case Collective::scatter:
      return pull_from_root(request, rank);
    default:
      return pull_everywhere(request, rank);
  }
}

bool two_hop_supports(const PlanRequest& request) {
  return request.collective == Collective::all_reduce && has_peers(request);
}

/// Rank c adds up chunk c, in one lane. The other lane fetches the sums of other ranks, so that the next slice is added
/// while this one is fetched.
RankPlan build_two_hop(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank, request.ranks);
  p.signal(p.others(), entered);
  p.wait(p.others(), entered);
  p.reduce_final(contributions(p, rank), {output(rank)});
  p.signal(p.others(), reduced);
  p.next_lane();
  for (const std::uint32_t owner : p.others()) {
    p.wait({owner}, reduced);
    p.copy(p.at(owner, output(owner)), output(owner));
    p.signal({owner}, done);
  }
  p.wait(p.others(), done);
  return p.finish();
}

bool push_supports(const PlanRequest& request) {
  using enum Collective;
  return is_one_of({all_reduce, all_gather, reduce, broadcast}, request.collective) && has_peers(request);
}

RankPlan push_from_root(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank);
  if (rank != request.root) {
    p.signal({request.root}, entered);
    p.wait({request.root}, done);
    return p.finish();
  }
  Operands everywhere;
  for (const std::uint32_t to : p.everyone())
    if (to != rank || !request.in_place) everywhere.push_back(p.at(to, output(0)));
  p.wait(p.others(), entered);
  if (!everywhere.empty()) p.copy(input(0), everywhere);
  p.signal(p.others(), done);
  return p.finish();
}

/// Writes into the outputs of all ranks that need the result. Only rank c reads chunk c of any input, and only rank c
/// writes chunk c of any output, so these may be the same memory.
RankPlan build_push(const PlanRequest& request, std::uint32_t rank) {
  if (request.collective == Collective::broadcast) return push_from_root(request, rank);
  const bool sums = is_reduction(request.collective);
  PlanBuilder p(request, rank, sums ? request.ranks : 1);
  Operands everywhere;
  for (const std::uint32_t to : p.everyone()) {
    const bool has_output = request.collective != Collective::reduce || to == request.root;
    const bool has_it_already = !sums && to == rank && request.in_place;
    if (has_output && !has_it_already) everywhere.push_back(p.at(to, output(rank)));
  }
  p.signal(p.others(), entered);
  p.wait(p.others(), entered);
  if (sums)
    p.reduce_final(contributions(p, rank), everywhere);
  else if (!everywhere.empty())
    p.copy(input(0), everywhere);
  p.signal(p.others(), done);
  p.wait(p.others(), done);
  return p.finish();
}

}  // namespace

extern constinit const Algorithm peer_one_hop{"peer_one_hop", "folklore: readers pull", pull_supports, build_pull,
                                              Numerics::rank_order};
extern constinit const Algorithm peer_two_hop{"peer_two_hop", "folklore: owners reduce, readers pull", two_hop_supports,
                                              build_two_hop, Numerics::rank_order};
extern constinit const Algorithm peer_push{"peer_push", "folklore: owners reduce and push", push_supports, build_push,
                                           Numerics::rank_order};

}  // namespace strait::algorithms
