#include "plan/proof/operation.hpp"

#include <algorithm>

#include "plan/print.hpp"

namespace strait::proof {

bool Operation::has_own_counts() const {
  const Collective collective = plan_.front().collective;
  return collective == Collective::all_to_all_v || collective == Collective::send_recv;
}

std::uint32_t Operation::chunks(std::uint32_t rank, Buffer buffer) const {
  const RankPlan& mine = plan_[rank];
  if (buffer == Buffer::scratch) return mine.scratch_chunks;
  if (mine.collective == Collective::send_recv) {
    const auto& posted = options_.point_to_point[rank];
    return static_cast<std::uint32_t>(std::count_if(
        posted.begin(), posted.end(), [&](const PointToPoint& p) { return p.sends == (buffer == Buffer::input); }));
  }
  return buffer == Buffer::input ? mine.input_chunks() : mine.output_chunks();
}

std::pair<std::uint32_t, std::uint32_t> Operation::matching_send(std::uint32_t rank, std::uint32_t receive) const {
  std::uint32_t receives = 0;
  std::vector<std::uint32_t> seen(ranks(), 0);
  std::uint32_t peer = 0;
  for (const PointToPoint& posted : options_.point_to_point[rank]) {
    if (posted.sends) continue;
    peer = posted.peer;
    if (receives++ == receive) break;
    ++seen[peer];
  }
  std::uint32_t sends = 0;
  std::uint32_t to_me = 0;
  for (const PointToPoint& posted : options_.point_to_point[peer]) {
    if (!posted.sends) continue;
    if (posted.peer == rank && to_me++ == seen[peer]) break;
    ++sends;
  }
  return {peer, sends};
}

Length Operation::length(std::uint32_t rank, Buffer buffer, std::uint32_t chunk) const {
  const RankPlan& mine = plan_[rank];
  if (mine.collective == Collective::all_to_all_v)
    return buffer == Buffer::input ? Length{rank, chunk} : Length{chunk, rank};
  if (mine.collective == Collective::send_recv) {
    if (buffer == Buffer::input) return {rank, chunk};
    const auto [peer, send] = matching_send(rank, chunk);
    return {peer, send};
  }
  return {0, chunk % mine.chunks_per_block};
}

std::uint32_t Operation::slices(Length length) const {
  if (!has_own_counts()) return options_.slices;
  return (options_.slices + 3 * length.owner + 2 * length.index) % (options_.slices + 1);
}

std::uint32_t Operation::slices(std::uint32_t rank, const Lane& lane) const {
  if (!has_own_counts()) return options_.slices;
  std::uint32_t most = 0;
  for (const Step& step : lane.steps)
    for (const auto* operands : {&step.sources, &step.destinations})
      for (const Operand& operand : *operands)
        if (operand.buffer != Buffer::scratch)
          most = std::max(most, slices(length(rank, operand.buffer, operand.chunk)));
  return most;
}

std::pair<Buffer, std::uint32_t> Operation::place(std::uint32_t rank, Buffer buffer, std::uint32_t chunk) const {
  if (!in_place(rank) || buffer == Buffer::scratch) return {buffer, chunk};
  if (chunks(rank, Buffer::input) == 0 || chunks(rank, Buffer::output) == 0) return {buffer, chunk};
  const RankPlan& mine = plan_[rank];
  const bool input_is_part = mine.input_blocks() < mine.output_blocks();
  const bool output_is_part = mine.output_blocks() < mine.input_blocks();
  const std::uint32_t own_block = rank * mine.chunks_per_block;
  if (input_is_part && buffer == Buffer::input) return {Buffer::output, own_block + chunk};
  if (output_is_part && buffer == Buffer::output) return {Buffer::input, own_block + chunk};
  if (!input_is_part && buffer == Buffer::output) return {Buffer::input, chunk};
  return {buffer, chunk};
}

std::pair<std::uint32_t, std::uint32_t> Operation::origin(std::uint32_t rank, std::uint32_t chunk) const {
  const RankPlan& mine = plan_[rank];
  const std::uint32_t per_block = mine.chunks_per_block;
  switch (mine.collective) {
    case Collective::all_gather:
    case Collective::gather:
      return {chunk / per_block, chunk % per_block};
    case Collective::reduce_scatter:
      return {rank, rank * per_block + chunk};
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return {chunk / per_block, rank * per_block + chunk % per_block};
    case Collective::scatter:
      return {mine.root, rank * per_block + chunk};
    case Collective::broadcast:
      return {mine.root, chunk};
    case Collective::send_recv:
      return matching_send(rank, chunk);
    default:
      return {rank, chunk};
  }
}

std::string Operation::where(std::uint32_t rank, std::size_t lane, std::size_t step) const {
  const RankPlan& mine = plan_[rank];
  return std::string(name(mine.collective)) + " '" + mine.algorithm + "', rank " + std::to_string(rank) + ", lane " +
         std::to_string(lane) + ", step " + std::to_string(step) + " [" +
         step_text(mine, mine.lanes[lane].steps[step]) + "]";
}

}  // namespace strait::proof
