// Into how many blocks and rounds calls are cut. For pipes see device_piped.cpp.
#include <algorithm>
#include <cmath>

#include "launches/device_calls.hpp"

namespace strait {
namespace {

using kernels::Cast;
using kernels::Exchange;
using kernels::Protocol;
using kernels::Slots;

/// Returns the number of rounds for slices whose two hops shall overlap. `parts`: a lane's share of a slice, in units
/// of min_overlap_lane_bytes. In an all-reduce, what a rank sends in both hops fills its links. In a reduce or a
/// broadcast a single hop would leave most links idle, so more rounds pay, and they pay earlier (4 H100).
std::uint32_t overlapping_rounds(Collective collective, double parts) {
  constexpr double reduce_part = 0.3, broadcast_part = 0.55, most_reduce_rounds = 24, most_broadcast_rounds = 12;
  if (collective == Collective::all_reduce) return parts < 1 ? 1 : 3;
  const bool reduces = collective == Collective::reduce;
  const double rounds = std::round(parts / (reduces ? reduce_part : broadcast_part));
  return static_cast<std::uint32_t>(std::clamp(rounds, 1.0, reduces ? most_reduce_rounds : most_broadcast_rounds));
}
/// The same through host memory, where each of four steps (up and down the link, twice) waits for the previous one.
constexpr std::size_t most_host_overlap_rounds = 8, host_overlap_parts = 16;
/// Limit of the rounds of messages that are cut so that links carry both directions at the same time; more rounds gain
/// nothing.
constexpr double most_rounds = 16;

}  // namespace

bool DeviceCalls::has_equal_parts(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::reduce_scatter || collective == Collective::all_to_all;
}

/// If PCIe takes most of the time, blocks that only copy move 32 KB or more between two fences, and a few of them fill
/// a link. For long messages through host memory, however, gathers are 5% faster with a block for each lane, and
/// broadcasts as fast (4 H200; other links and numbers of ranks were not measured).
Slots DeviceCalls::slots(const Call& call, Protocol protocol, std::size_t message_bytes) const {
  constexpr std::size_t least_block_bytes = 32 << 10, most_blocks = 32;
  std::size_t blocks = blocks_for(call);
  const kernels::ProtocolSlots& all = ring_.slots[static_cast<std::size_t>(protocol)];
  if (protocol != Protocol::bulk || kernels::flagged_protocol(ring_) != Protocol::packets)
    return kernels::slots_of(ring_, protocol, static_cast<std::uint32_t>(blocks));
  if (is_long_through_host(message_bytes))
    return kernels::slots_of(ring_, protocol, static_cast<std::uint32_t>(blocks), most_lanes(call.collective));
  blocks = std::min(
      blocks, std::clamp(all.lanes * std::size_t{all.slot_bytes} / least_block_bytes, std::size_t{1}, most_blocks));
  return kernels::slots_of(ring_, protocol, static_cast<std::uint32_t>(blocks));
}

/// Limit of the lanes of a long message through host memory. If all ranks write to all others, more slots gain nothing,
/// and all-reduces take up to 14% longer, apparently because the data no longer fits into the host's caches (4 H200).
std::uint32_t DeviceCalls::most_lanes(Collective collective) {
  const bool all_write = has_equal_parts(collective) || collective == Collective::reduce;
  return all_write ? large_call_blocks : kernels::max_lanes;
}

/// Gives the same result on all ranks. Calls that a group launches together are never long, because all of them have
/// blocks of one width.
bool DeviceCalls::is_long_through_host(std::size_t message_bytes) const {
  constexpr std::size_t long_message_bytes = 1 << 20;
  return ring_.staged && ring_.ranks > 2 && message_bytes >= long_message_bytes;
}

Slots DeviceCalls::slots_for(const Call& call, bool one_hop, std::size_t message_bytes) const {
  Slots through = protocol_for(call, one_hop, message_bytes);
  through.rounds = rounds_for(call, one_hop, through, message_bytes);
  return through;
}

/// Returns the delay from the start of one group of blocks to that of the next. It lets data of one block go up the
/// link while another block waits for its fence, or reads. For 2 MB and more it is 12.8 us for all groups together, for
/// less it is proportional: between four H200, all-reduces and reduce-scatters of 2 MB are a tenth faster with it,
/// those of 1 MB 3 to 5%, and all-reduces of 16 MB and more up to 2% slower. On slower links it is longer
/// (borders.hpp). `bytes`: length of the larger buffer.
std::uint32_t DeviceCalls::host_stagger_ns(Protocol protocol, std::size_t bytes) const {
  constexpr std::size_t long_bytes = std::size_t{2} << 20;
  if (!ring_.staged || protocol != Protocol::bulk) return 0;
  return static_cast<std::uint32_t>(std::min(bytes, long_bytes) * borders_.stagger_ns / long_bytes);
}

/// No delay if only one rank writes or receives: links then carry one direction at any time, and nothing is gained.
std::uint32_t DeviceCalls::host_stagger_ns(const Call& call, bool one_hop, const Slots& through) const {
  if (ring_.ranks < 2 || (one_hop && !has_equal_parts(call.collective))) return 0;
  return host_stagger_ns(through.protocol, buffer_sizes(call, ring_.rank, ring_.ranks).larger_bytes());
}

/// The same for messages, except that shorter ones would take longer with the delay (256 KB: 25.5 instead of 24.5 us).
std::uint32_t DeviceCalls::host_stagger_ns(const Exchange& messages, Protocol protocol) const {
  constexpr std::size_t least_bytes = 384 << 10;
  std::size_t sent_bytes = 0, taken_bytes = 0;
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    if (peer == ring_.rank) continue;
    sent_bytes += messages.send[peer].bytes;
    taken_bytes += messages.receive[peer].bytes;
  }
  const bool goes_both_ways = sent_bytes != 0 && taken_bytes != 0;
  const std::size_t longer = std::max(sent_bytes, taken_bytes);
  return goes_both_ways && longer >= least_bytes ? host_stagger_ns(protocol, longer) : 0;
}

/// Returns the number of rounds in which links to the host carry both directions at the same time. Receiving is one
/// round behind sending, so with r rounds only sending takes place during 1/r of the time, and each round costs the
/// time in which the link carries `round_cost_bytes`. `bytes`: what a rank writes.
std::uint32_t DeviceCalls::rounds_both_ways(std::size_t bytes) const {
  const auto round_cost_bytes = static_cast<double>(std::max<std::size_t>(borders_.round_cost_bytes, 1));
  const double worth = static_cast<double>(bytes) / round_cost_bytes;
  return static_cast<std::uint32_t>(std::clamp(std::round(std::sqrt(worth)), 1.0, most_rounds));
}

/// Returns into how many chunks a lane's share of a message is cut at least. With two hops the number is chosen so that
/// these overlap.
std::uint32_t DeviceCalls::rounds_for(const Call& call, bool one_hop, const Slots& through,
                                      std::size_t message_bytes) const {
  if (!one_hop) {
    if (ring_.staged && through.protocol == Protocol::bulk && call.wire == WireFormat::off) {
      const std::size_t lane_bytes = message_bytes / ring_.slots[static_cast<std::size_t>(Protocol::bulk)].lanes;
      const std::size_t round_bytes = std::max<std::size_t>(borders_.min_overlap_lane_bytes / host_overlap_parts, 1);
      const std::size_t rounds = (lane_bytes + round_bytes - 1) / round_bytes;
      return static_cast<std::uint32_t>(std::clamp<std::size_t>(rounds, 1, most_host_overlap_rounds));
    }
    // A few blocks are busy anyway and leave links idle: more rounds than the slots require make such calls take up to
    // 40% longer (4 to 16 blocks on four H200).
    if (has_few_blocks(call) && has_root(call.collective)) return 1;
    const std::size_t lane_bytes = message_bytes / through.lanes;
    return overlapping_rounds(call.collective,
                              static_cast<double>(lane_bytes) / static_cast<double>(borders_.min_overlap_lane_bytes));
  }
  if (!ring_.staged || through.protocol != Protocol::bulk || !has_equal_parts(call.collective)) return 1;
  const std::uint32_t messages = cast_of(call) == Cast::multi ? 1 : ring_.ranks - 1;  // messages that a rank writes
  return rounds_both_ways(message_bytes * messages);
}

}  // namespace strait
