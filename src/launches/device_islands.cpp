#include "launches/device_islands.hpp"

#include <algorithm>
#include <utility>

#include "launches/island_steps.hpp"

namespace strait {
namespace {

using Among = IslandStep::Among;
using island_steps::at;
using island_steps::rooted;
using island_steps::step;

/// Up to this length every place of an island moves all of the data, rather than a share: more bytes cross, in one
/// launch less.
constexpr std::size_t whole_limit_bytes = 64 << 10;
/// Islands carry copies from this length on: the length of a broadcast, or of the blocks of all ranks together. Copies
/// then take more launches, and have the same bits.
constexpr std::size_t copies_from_bytes = 1 << 20;
/// Shares begin aligned to this if the buffer does.
constexpr std::size_t grain_bytes = 16;

std::size_t grain(DataType type) { return grain_bytes / size_bytes(type); }
/// The grain of a call's parts. With a wire format, parts begin at blocks of the format.
std::size_t grain(const Call& call) {
  return call.wire == WireFormat::off ? grain(call.type) : std::size_t{wire::block_elements};
}
std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }
std::size_t round_down(std::size_t value, std::size_t unit) { return value / unit * unit; }

/// Adds to a step the residual of what is sent from element `first` on.
IslandStep with_residual(IslandStep step, const Call& whole, std::size_t first) {
  if (whole.residual != nullptr) step.call.residual = whole.residual + first;
  return step;
}

}  // namespace

DeviceIslands::DeviceIslands(std::uint32_t rank, std::vector<Island> islands, std::byte* scratch,
                             std::size_t size_bytes)
    : rank_(rank),
      islands_(std::move(islands)),
      island_(place_of(islands_, rank).island),
      place_(place_of(islands_, rank).place),
      alike_(are_alike(islands_)),
      ranks_(blocks_before(islands_.size())),
      scratch_(scratch),
      scratch_bytes_(size_bytes) {
  for (std::uint32_t next = 0; next < ranks_; ++next) {
    const std::uint32_t island = place_of(islands_, next).island;
    if (runs_.empty() || runs_.back().island != island) runs_.push_back({island, next, 0});
    ++runs_.back().ranks;
  }
}

bool DeviceIslands::carries(const Call& call) const {
  if (islands_.empty()) return false;
  if (call.collective == Collective::all_to_all_v) return true;
  if (call.count == 0) return false;
  // Copies in a wire format are encoded first, and then come here again as bytes.
  if (call.wire != WireFormat::off)
    return call.collective == Collective::all_reduce || (call.collective == Collective::reduce_scatter && alike_);
  switch (call.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::reduce_scatter:
      return true;
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      return is_long_block(call.count, call.type);
    case Collective::broadcast:
      return call.count * size_bytes(call.type) >= copies_from_bytes;
    default:
      return false;
  }
}

std::vector<IslandStep> DeviceIslands::steps_of(const Call& call) const {
  if (crosses_whole(call)) return {whole_across(call)};
  Steps steps;
  switch (call.collective) {
    case Collective::all_reduce:
      if (!alike_ || (call.wire != WireFormat::off && share_of(call.count, call.type) == 0))
        all_reduce_by_first_ranks(call, steps);
      else
        call.wire == WireFormat::off ? all_reduce(call, steps) : all_reduce_in_wire_format(call, steps);
      break;
    case Collective::reduce:
      alike_ ? reduce(call, steps) : reduce_by_first_ranks(call, steps);
      break;
    case Collective::reduce_scatter:
      alike_ ? reduce_scatter(call, steps) : reduce_scatter_by_first_ranks(call, steps);
      break;
    case Collective::all_gather:
      alike_ ? all_gather(call, steps) : all_gather_by_first_ranks(call, steps);
      break;
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      exchange(call, steps);
      break;
    case Collective::all_to_all_v:
      exchange_lengths(call, steps);
      break;
    default:
      alike_ ? broadcast(call, steps) : broadcast_by_first_ranks(call, steps);
  }
  return steps;
}

/// Returns whether the call crosses as it is, because every island is a single rank. That excludes premul_sum: its
/// scalars belong to ranks, and multiply before anything crosses.
bool DeviceIslands::crosses_whole(const Call& call) const {
  const bool is_carried_so = is_reduction(call.collective) || call.collective == Collective::all_gather ||
                             call.collective == Collective::broadcast;
  return ranks_ == islands_.size() && is_carried_so &&
         !(is_reduction(call.collective) && call.op == ReduceOp::premul_sum);
}

IslandStep DeviceIslands::whole_across(const Call& call) const {
  IslandStep whole = step(Among::across, call, call.collective, call.send, call.receive, call.count);
  if (has_root(call.collective)) return rooted(std::move(whole), place_of(islands_, call.root).island);
  return with_residual(std::move(whole), call, 0);
}

bool DeviceIslands::is_long_block(std::size_t elements, DataType type) const {
  return elements * size_bytes(type) >= copies_from_bytes / ranks_;
}

std::size_t DeviceIslands::share_of(std::size_t elements, DataType type) const {
  if (elements * size_bytes(type) <= whole_limit_bytes) return 0;
  return round_down(elements / islands_[island_].size(), grain(type));
}

std::size_t DeviceIslands::blocks_before(std::size_t island) const {
  std::size_t ranks = 0;
  for (std::size_t i = 0; i < island; ++i) ranks += islands_[i].size();
  return ranks;
}

std::size_t DeviceIslands::most_ranks() const {
  std::size_t most = 0;
  for (const Island& island : islands_) most = std::max(most, island.size());
  return most;
}

std::vector<std::size_t> DeviceIslands::places_in(std::uint32_t island, std::size_t block) const {
  std::vector<std::size_t> places;
  for (const std::uint32_t rank : islands_[island]) places.push_back(rank * block);
  return places;
}

/// Works in the output: the rank's own share becomes the island's sum, then the sum of all ranks; then the other shares
/// are gathered.
void DeviceIslands::all_reduce(const Call& call, Steps& steps) const {
  const std::size_t share = share_of(call.count, call.type);
  const std::size_t shared = share * islands_[island_].size();
  if (share != 0) {
    std::byte* const own = at(call.receive, place_ * share, call.type);
    steps.push_back(step(Among::island, call, Collective::reduce_scatter, call.send, own, share));
    steps.push_back(step(Among::across, call, Collective::all_reduce, own, own, share));
    steps.push_back(step(Among::island, call, Collective::all_gather, own, call.receive, share));
  }
  if (shared == call.count) return;
  std::byte* const rest = at(call.receive, shared, call.type);
  const std::size_t left = call.count - shared;
  steps.push_back(step(Among::island, call, Collective::all_reduce, at(call.send, shared, call.type), rest, left));
  steps.push_back(step(Among::across, call, Collective::all_reduce, rest, rest, left));
}

/// As all_reduce(), but without a remainder that all places would move: each place has a residual of its own, so they
/// would get different results.
void DeviceIslands::all_reduce_in_wire_format(const Call& call, Steps& steps) const {
  const std::size_t size = islands_[island_].size();
  const std::size_t share = round_up((call.count + size - 1) / size, grain(call));
  std::vector<std::size_t> counts, offsets;
  for (std::size_t place = 0; place < size; ++place) {  // the last places may get nothing
    offsets.push_back(std::min(place * share, call.count));
    counts.push_back(std::min(share, call.count - offsets.back()));
  }
  const std::size_t first = offsets[place_], count = counts[place_];
  std::byte* const own = at(call.receive, first, call.type);
  steps.push_back(step(Among::island, call, Collective::reduce_scatter, call.send, own, share));
  steps.back().call.send_counts = counts;
  steps.back().call.send_offsets = offsets;
  if (count != 0)  // otherwise the count is 0 at this place of every island
    steps.push_back(with_residual(step(Among::across, call, Collective::all_reduce, own, own, count), call, first));
  steps.push_back(step(Among::island, call, Collective::all_gather, own, call.receive, share));
  steps.back().call.receive_counts = counts;
  steps.back().call.receive_offsets = offsets;
}

/// Works in scratch, because only the root has an output. What is not divided into shares is moved by the ranks with
/// the root's place.
void DeviceIslands::reduce(const Call& call, Steps& steps) const {
  const auto [root_island, root_place] = place_of(islands_, call.root);
  const std::size_t size = islands_[island_].size();
  const std::size_t most = round_down(scratch_bytes_ / size_bytes(call.type), grain(call.type));
  std::size_t first = 0;
  while (first < call.count) {
    const std::byte* const input = at(call.send, first, call.type);
    std::byte* const output = rank_ == call.root ? at(call.receive, first, call.type) : nullptr;
    const std::size_t left = call.count - first;
    const std::size_t share = std::min(share_of(left, call.type), most);
    if (share == 0) {
      steps.push_back(rooted(step(Among::island, call, Collective::reduce, input, scratch_, left), root_place));
      if (place_ == root_place)
        steps.push_back(rooted(step(Among::across, call, Collective::reduce, scratch_, output, left), root_island));
      return;
    }
    steps.push_back(step(Among::island, call, Collective::reduce_scatter, input, scratch_, share));
    steps.push_back(rooted(step(Among::across, call, Collective::reduce, scratch_, scratch_, share), root_island));
    if (island_ == root_island)
      steps.push_back(rooted(step(Among::island, call, Collective::gather, scratch_, output, share), root_place));
    first += share * size;
  }
}

/// The island sums into scratch the blocks of the ranks with this rank's place, in the order of the islands.
void DeviceIslands::reduce_scatter(const Call& call, Steps& steps) const {
  const std::size_t most =
      round_down(scratch_bytes_ / islands_.size() / size_bytes(call.type), IslandStep::parts_grain * grain(call));
  for (std::size_t first = 0; first < call.count; first += most) {
    const std::size_t part = std::min(most, call.count - first);
    const std::byte* const input = at(call.send, first, call.type);
    for (std::uint32_t island = 0; island < islands_.size(); ++island) {
      steps.push_back(
          step(Among::island, call, Collective::reduce_scatter, input, at(scratch_, island * part, call.type), part));
      steps.back().call.send_offsets = places_in(island, call.count);
    }
    steps.push_back(with_residual(
        step(Among::across, call, Collective::reduce_scatter, scratch_, at(call.receive, first, call.type), part), call,
        first * islands_.size()));
    if (part < call.count) steps.back().part = {first, most, call.count};
  }
}

void DeviceIslands::all_reduce_by_first_ranks(const Call& call, Steps& steps) const {
  const bool adds = !is_alone() || call.op == ReduceOp::premul_sum;
  if (adds)
    steps.push_back(rooted(step(Among::island, call, Collective::reduce, call.send, call.receive, call.count), 0));
  if (place_ == 0)
    steps.push_back(with_residual(
        step(Among::across, call, Collective::all_reduce, adds ? call.receive : call.send, call.receive, call.count),
        call, 0));
  if (!is_alone())
    steps.push_back(
        rooted(step(Among::island, call, Collective::broadcast, call.receive, call.receive, call.count), 0));
}

/// Works in scratch. If the root is not the first rank of its island, it gets the result from that rank.
void DeviceIslands::reduce_by_first_ranks(const Call& call, Steps& steps) const {
  const auto [root_island, root_place] = place_of(islands_, call.root);
  const std::size_t most = round_down(scratch_bytes_ / size_bytes(call.type), grain(call.type));
  for (std::size_t first = 0; first < call.count; first += most) {
    const std::size_t part = std::min(most, call.count - first);
    std::byte* const output = rank_ == call.root ? at(call.receive, first, call.type) : scratch_;
    steps.push_back(
        rooted(step(Among::island, call, Collective::reduce, at(call.send, first, call.type), scratch_, part), 0));
    if (place_ == 0)
      steps.push_back(rooted(step(Among::across, call, Collective::reduce, scratch_, output, part), root_island));
    if (island_ == root_island && root_place != 0) {
      steps.push_back(rooted(step(Among::island, call, Collective::broadcast, scratch_, output, part), 0));
      steps.back().call.by_slots = true;
    }
  }
}

/// Works in scratch, where the blocks of an island's ranks are contiguous: each first rank gets the blocks of its
/// island, and scatters them.
void DeviceIslands::reduce_scatter_by_first_ranks(const Call& call, Steps& steps) const {
  const std::size_t most = round_down(scratch_bytes_ / ranks_ / size_bytes(call.type), grain(call.type));
  for (std::size_t first = 0; first < call.count; first += most) {
    const std::size_t part = std::min(most, call.count - first);
    const auto in_scratch = [&](std::size_t block) { return at(scratch_, block * part, call.type); };
    for (const Run& run : runs_) {
      const std::uint32_t together = part == call.count ? run.ranks : 1;  // whole blocks are contiguous
      for (std::uint32_t i = 0; i < run.ranks; i += together) {
        const std::byte* const input = at(call.send, (run.first + i) * call.count + first, call.type);
        std::byte* const sum = in_scratch(blocks_before(run.island) + place_of(islands_, run.first + i).place);
        steps.push_back(rooted(step(Among::island, call, Collective::reduce, input, sum, together * part), 0));
      }
    }
    std::byte* const own = in_scratch(blocks_before(island_));
    std::byte* const output = at(call.receive, first, call.type);
    if (place_ == 0) {
      steps.push_back(step(Among::across, call, Collective::reduce_scatter, scratch_, is_alone() ? output : own,
                           most_ranks() * part));
      for (std::uint32_t island = 0; island < islands_.size(); ++island) {
        steps.back().call.send_counts.push_back(islands_[island].size() * part);
        steps.back().call.send_offsets.push_back(blocks_before(island) * part);
      }
    }
    if (!is_alone()) steps.push_back(rooted(step(Among::island, call, Collective::scatter, own, output, part), 0));
  }
}

}  // namespace strait
