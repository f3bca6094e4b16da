#include <algorithm>
#include <bit>

#include "builder.hpp"

/// Algorithms with a logarithmic number of exchanges, for any number of ranks: at distances d = 1, 2, 4, ... rank r
/// gets what rank r + d has. Below, block i is the block of rank r + i. The reduce-scatter is the all-gather run
/// backwards, as in PAT; its sums are rounded at every hop.
namespace strait::algorithms {
namespace {

bool supports(const PlanRequest& request) {
  using enum Collective;
  return is_one_of({all_gather, all_to_all, reduce_scatter}, request.collective);
}

void all_gather(PlanBuilder& p, std::uint32_t rank, std::uint32_t ranks) {
  p.copy(input(0), output(rank));
  for (std::uint32_t distance = 1; distance < ranks; distance *= 2)
    for (std::uint32_t i = 0; i < std::min(distance, ranks - distance); ++i) {
      const std::uint32_t mine = p.around(i);
      const std::uint32_t theirs = p.around(i + distance);
      p.copy(output(mine), p.send({p.around(-static_cast<std::int64_t>(distance))}, output(mine)));
      p.copy(p.receive(p.around(distance), output(theirs)), output(theirs));
    }
}

void reduce_scatter(PlanBuilder& p, std::uint32_t ranks) {
  if (ranks == 1) p.reduce_final({input(0)}, {output(0)});
  for (std::uint32_t distance = std::bit_ceil(ranks) / 2; distance >= 1; distance /= 2)
    for (std::uint32_t i = 0; i < std::min(distance, ranks - distance); ++i) {
      // A block is a partial sum in scratch if an exchange at a larger distance has added to it.
      const auto current = [&](std::uint32_t block) {
        for (std::uint32_t larger = 2 * distance; larger < ranks; larger *= 2)
          if (block < std::min(larger, ranks - larger)) return scratch(block);
        return input(p.around(block));
      };
      p.copy(current(i + distance), p.send({p.around(distance)}, input(p.around(i + distance))));
      const Operand arriving = p.receive(p.around(-static_cast<std::int64_t>(distance)), input(p.around(i)));
      if (distance == 1)
        p.reduce_final({arriving, current(i)}, {output(0)});
      else
        p.reduce_partial({arriving, current(i)}, {scratch(i)});
    }
}

/// Block i travels the distances that are the bits of i, lowest first. It is in the input until its first hop (in place
/// it cannot stay there), in scratch between hops, and in the output after its last hop.
void all_to_all(PlanBuilder& p, const PlanRequest& request, std::uint32_t rank) {
  const std::uint32_t ranks = request.ranks;
  p.reserve(std::size_t{ranks} * (static_cast<std::size_t>(std::bit_width(ranks)) + 1));
  if (!request.in_place) p.copy(input(rank), output(rank));
  for (std::uint32_t block = 1; request.in_place && block < ranks; ++block)
    p.copy(input(p.around(block)), scratch(block));
  for (std::uint32_t distance = 1; distance < ranks; distance *= 2)
    for (std::uint32_t block = distance; block < ranks; ++block) {
      if ((block & distance) == 0) continue;
      const bool is_first = block % distance == 0;
      const bool is_last = block < 2 * distance;
      const Operand region = input(p.around(block));
      const Operand arrived = output(p.around(-static_cast<std::int64_t>(block)));
      p.copy(is_first && !request.in_place ? region : scratch(block), p.send({p.around(distance)}, region));
      p.copy(p.receive(p.around(-static_cast<std::int64_t>(distance)), region), is_last ? arrived : scratch(block));
    }
}

RankPlan build(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank);
  if (request.collective == Collective::all_gather)
    all_gather(p, rank, request.ranks);
  else if (request.collective == Collective::reduce_scatter)
    reduce_scatter(p, request.ranks);
  else
    all_to_all(p, request, rank);
  return p.finish();
}

}  // namespace

extern constinit const Algorithm bruck{"bruck", "Bruck et al. 1997, Efficient algorithms for all-to-all communications",
                                       supports, build};

}  // namespace strait::algorithms
