// Calls over islands that only copy: all-gather, broadcast, and exchanges from rank to rank.
#include <utility>

#include "launches/device_islands.hpp"
#include "launches/island_steps.hpp"

namespace strait {

using Among = IslandStep::Among;
using island_steps::at;
using island_steps::rooted;
using island_steps::step;

std::vector<std::size_t> DeviceIslands::places_across(std::size_t block) const {
  std::vector<std::size_t> places;
  for (const Island& island : islands_) places.push_back(island[place_] * block);
  return places;
}

/// First the blocks of the ranks with this rank's place cross. Then the ranks of the island give one another each
/// island's blocks.
void DeviceIslands::all_gather(const Call& call, Steps& steps) const {
  steps.push_back(step(Among::across, call, Collective::all_gather, call.send, call.receive, call.count));
  steps.back().call.receive_offsets = places_across(call.count);
  for (const Island& island : islands_) {
    const std::byte* const own = at(call.receive, island[place_] * call.count, call.type);
    steps.push_back(step(Among::island, call, Collective::all_gather, own, call.receive, call.count));
    steps.back().call.receive_offsets = places_in(static_cast<std::uint32_t>(&island - islands_.data()), call.count);
  }
}

/// The root scatters the data to its island, each share crosses, and the islands gather the shares.
void DeviceIslands::broadcast(const Call& call, Steps& steps) const {
  const auto [root_island, root_place] = place_of(islands_, call.root);
  const std::size_t share = share_of(call.count, call.type);
  const std::size_t shared = share * islands_[island_].size();
  std::byte* const own = at(call.receive, place_ * share, call.type);
  if (island_ == root_island)
    steps.push_back(rooted(step(Among::island, call, Collective::scatter, call.send, own, share), root_place));
  steps.push_back(rooted(step(Among::across, call, Collective::broadcast, own, own, share), root_island));
  steps.push_back(step(Among::island, call, Collective::all_gather, own, call.receive, share));
  if (shared == call.count) return;
  const std::byte* const rest = rank_ == call.root ? at(call.send, shared, call.type) : nullptr;
  steps.push_back(rooted(
      step(Among::all, call, Collective::broadcast, rest, at(call.receive, shared, call.type), call.count - shared),
      call.root));
}

/// First the island's own blocks are gathered; then the first ranks exchange the islands' blocks across; then they
/// broadcast these inside.
void DeviceIslands::all_gather_by_first_ranks(const Call& call, Steps& steps) const {
  steps.push_back(step(Among::island, call, Collective::all_gather, call.send, call.receive, call.count));
  steps.back().call.receive_offsets = places_in(island_, call.count);
  const auto hand_over = [&](Among among, const Run& run, std::uint32_t root) {
    std::byte* const blocks = at(call.receive, run.first * call.count, call.type);
    steps.push_back(rooted(step(among, call, Collective::broadcast, blocks, blocks, run.ranks * call.count), root));
  };
  if (place_ == 0 && runs_.size() == islands_.size()) {
    const std::byte* const own = at(call.receive, islands_[island_].front() * call.count, call.type);
    steps.push_back(step(Among::across, call, Collective::all_gather, own, call.receive, most_ranks() * call.count));
    for (const Island& island : islands_) {
      steps.back().call.receive_counts.push_back(island.size() * call.count);
      steps.back().call.receive_offsets.push_back(island.front() * call.count);
    }
  } else if (place_ == 0) {
    for (const Run& run : runs_) hand_over(Among::across, run, run.island);
  }
  if (is_alone()) return;
  Run foreign;  // consecutive runs of other islands, whose blocks are contiguous
  for (const Run& run : runs_) {
    if (run.island == island_) {
      if (foreign.ranks != 0) hand_over(Among::island, foreign, 0);
      foreign = {.first = run.first + run.ranks};
    } else {
      foreign.ranks += run.ranks;
    }
  }
  if (foreign.ranks != 0) hand_over(Among::island, foreign, 0);
}

void DeviceIslands::broadcast_by_first_ranks(const Call& call, Steps& steps) const {
  const auto [root_island, root_place] = place_of(islands_, call.root);
  const bool is_roots = island_ == root_island;
  const auto hand_round = [&](const void* from, std::uint32_t root) {
    steps.push_back(rooted(step(Among::island, call, Collective::broadcast, from, call.receive, call.count), root));
  };
  if (is_roots) hand_round(call.send, root_place);
  if (place_ == 0)
    steps.push_back(
        rooted(step(Among::across, call, Collective::broadcast, call.receive, call.receive, call.count), root_island));
  if (!is_roots && !is_alone()) hand_round(call.receive, 0);
}

/// First blocks that stay within the island, then those that cross, directly from rank to rank. In a gather or a
/// scatter only the root's island has a step inside. A rank's own block is part of the step inside, if there is one.
void DeviceIslands::exchange(const Call& call, Steps& steps) const {
  const bool is_rooted = has_root(call.collective);
  const IslandPlace center = is_rooted ? place_of(islands_, call.root) : IslandPlace{island_, place_};
  const Island& island = islands_[center.island];
  const auto add = [&](Among among, std::uint32_t root) -> Call& {
    steps.push_back(rooted(step(among, call, call.collective, call.send, call.receive, call.count), root));
    return steps.back().call;
  };
  const bool sends_blocks = call.collective != Collective::gather;
  const bool receives_blocks = call.collective != Collective::scatter;
  std::vector<std::size_t> counts(ranks_, call.count);
  if (island.size() > 1)
    for (const std::uint32_t rank : island) counts[rank] = 0;
  if (island.size() > 1 && center.island == island_) {
    Call& inside = add(Among::island, is_rooted ? center.place : call.root);
    if (sends_blocks) inside.send_offsets = places_in(island_, call.count);
    if (receives_blocks) inside.receive_offsets = places_in(island_, call.count);
  }
  Call& others = add(Among::all, call.root);
  if (sends_blocks) others.send_counts = counts;
  if (receives_blocks) others.receive_counts = counts;
}

/// As exchange(), but short blocks within the island go along with the blocks that cross. Each block is treated by its
/// own length, which only its two ranks know; both come to the same result. If no other block stays inside, the rank's
/// own block does not, either.
void DeviceIslands::exchange_lengths(const Call& call, Steps& steps) const {
  const Island& island = islands_[island_];
  steps.assign(2, step(Among::all, call, call.collective, call.send, call.receive, 0));
  steps[0].among = Among::island;
  Call &inside = steps[0].call, &others = steps[1].call;
  others.send_counts = call.send_counts;
  others.send_offsets = call.send_offsets;
  others.receive_counts = call.receive_counts;
  others.receive_offsets = call.receive_offsets;
  bool has_inside = false;
  for (const std::uint32_t peer : island) {
    const auto take = [&](std::size_t& count) {
      const bool stays = peer != rank_ && is_long_block(count, call.type);
      has_inside |= stays;
      return stays ? std::exchange(count, 0) : 0;
    };
    inside.send_counts.push_back(take(others.send_counts[peer]));
    inside.send_offsets.push_back(call.send_offsets[peer]);
    inside.receive_counts.push_back(take(others.receive_counts[peer]));
    inside.receive_offsets.push_back(call.receive_offsets[peer]);
  }
  if (!has_inside) return;
  std::swap(inside.send_counts[place_], others.send_counts[rank_]);
  std::swap(inside.receive_counts[place_], others.receive_counts[rank_]);
}

}  // namespace strait
