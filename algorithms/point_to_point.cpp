#include "builder.hpp"

/// Operations with a separate count for every pair of ranks: groups of sends and receives, and all-to-all-v. Each peer
/// and direction has its own lane, so that no pair waits for another. In round k a rank sends to rank + k and receives
/// from rank - k.
namespace strait::algorithms {
namespace {

bool supports(const PlanRequest& request) {
  return request.collective == Collective::send_recv || request.collective == Collective::all_to_all_v;
}

/// Returns the chunks that this rank sends to (or receives from) a peer, in order. The i-th posted send is chunk i of
/// the input, the i-th posted receive is chunk i of the output.
std::vector<std::uint32_t> chunks_of(const PlanRequest& request, bool sends, std::uint32_t peer) {
  if (request.collective == Collective::all_to_all_v) return {peer};
  std::vector<std::uint32_t> chunks;
  std::uint32_t chunk = 0;
  for (const PointToPoint& posted : request.point_to_point) {
    if (posted.sends != sends) continue;
    if (posted.peer == peer) chunks.push_back(chunk);
    ++chunk;
  }
  return chunks;
}

RankPlan build(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank);
  const auto own_sends = chunks_of(request, true, rank);
  const auto own_receives = chunks_of(request, false, rank);
  for (std::size_t i = 0; i < own_sends.size() && i < own_receives.size(); ++i)
    p.copy(input(own_sends[i]), output(own_receives[i]));
  for (std::uint32_t round = 1; round < request.ranks; ++round) {
    const std::uint32_t to = p.around(round);
    const std::uint32_t from = p.around(-static_cast<std::int64_t>(round));
    p.next_lane();
    for (const std::uint32_t chunk : chunks_of(request, true, to)) p.copy(input(chunk), p.send({to}, input(chunk)));
    p.next_lane();
    for (const std::uint32_t chunk : chunks_of(request, false, from))
      p.copy(p.receive(from, output(chunk)), output(chunk));
  }
  return p.finish();
}

}  // namespace

extern constinit const Algorithm point_to_point{"point_to_point", "folklore", supports, build};

}  // namespace strait::algorithms
