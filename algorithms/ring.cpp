#include "builder.hpp"

/// Rings: every rank talks only to its two neighbours, and each link carries every byte once. A sum is rounded at every
/// hop (elements travel, not accumulators) and starts at the rank after its owner, so its order differs between chunks.
namespace strait::algorithms {
namespace {

bool supports(const PlanRequest& request) {
  using enum Collective;
  return is_one_of({all_reduce, all_gather, reduce_scatter, broadcast, reduce}, request.collective);
}

/// The messages to the next rank, in order. They alternate between two links: with one link of one slot every rank
/// would wait for the next one to take its message before it takes one itself.
class Ring {
 public:
  Ring(PlanBuilder& builder) : p_(builder) {}
  Operand send(Operand region) { return p_.send({p_.around(1)}, region, sent_++ % 2).front(); }
  Operand receive(Operand region) { return p_.receive(p_.around(-1), region, received_++ % 2); }
  /// Returns `own`, and what sends `region` if it `goes_on`.
  Operands keep(Operand own, bool goes_on, Operand region) {
    return goes_on ? Operands{own, send(region)} : Operands{own};
  }

 private:
  PlanBuilder& p_;
  std::uint16_t sent_ = 0;
  std::uint16_t received_ = 0;
};

/// Puts the sum of chunk `rank` into `result`, and sends it to the next rank if `goes_on`.
void reduce_scatter(PlanBuilder& p, Ring& ring, std::uint32_t ranks, Operand result, bool goes_on) {
  p.copy(input(p.around(-1)), ring.send(input(p.around(-1))));
  for (std::uint32_t hop = 1; hop < ranks; ++hop) {
    const Operand mine = input(p.around(-1 - static_cast<std::int64_t>(hop)));
    const Operand partial = ring.receive(mine);
    if (hop + 1 < ranks) {
      p.reduce_partial({partial, mine}, {ring.send(mine)});
      continue;
    }
    p.reduce_final({partial, mine}, ring.keep(result, goes_on, mine));
  }
}

void all_gather(PlanBuilder& p, Ring& ring, std::uint32_t ranks) {
  for (std::uint32_t hop = 1; hop < ranks; ++hop) {
    const Operand here = output(p.around(-static_cast<std::int64_t>(hop)));
    const Operand source = ring.receive(here);
    p.copy(source, ring.keep(here, hop + 1 < ranks, here));
  }
}

/// Broadcast and reduce use the ring as a chain, cut at the root.
void chain(PlanBuilder& p, Ring& ring, const PlanRequest& request, std::uint32_t rank) {
  const std::uint32_t distance = (rank + request.ranks - request.root) % request.ranks;
  if (request.collective == Collective::broadcast) {
    const Operand source = distance == 0 ? input(0) : ring.receive(output(0));
    p.copy(source, ring.keep(output(0), distance + 1 < request.ranks, output(0)));
  } else if (distance == 1) {
    p.copy(input(0), ring.send(input(0)));
  } else {
    const Operand partial = ring.receive(input(0));
    if (distance == 0)
      p.reduce_final({partial, input(0)}, {output(0)});
    else
      p.reduce_partial({partial, input(0)}, {ring.send(input(0))});
  }
}

RankPlan build(const PlanRequest& request, std::uint32_t rank) {
  const std::uint32_t n = request.ranks;
  PlanBuilder p(request, rank, request.collective == Collective::all_reduce ? n : 1);
  Ring ring(p);
  if (n == 1 && is_reduction(request.collective)) {
    p.reduce_final({input(0)}, {output(0)});
    return p.finish();
  }
  switch (request.collective) {
    case Collective::all_reduce:
      reduce_scatter(p, ring, n, output(rank), true);
      all_gather(p, ring, n);
      break;
    case Collective::reduce_scatter:
      reduce_scatter(p, ring, n, output(0), false);
      break;
    case Collective::all_gather:
      p.copy(input(0), ring.keep(output(rank), n > 1, input(0)));
      all_gather(p, ring, n);
      break;
    default:
      chain(p, ring, request, rank);
  }
  return p.finish();
}

}  // namespace

extern constinit const Algorithm ring{"ring", "Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms",
                                      supports, build};

}  // namespace strait::algorithms
