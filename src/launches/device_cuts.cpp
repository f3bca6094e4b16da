// In how many blocks and rounds calls are cut; those of pipes are in device_piped.cpp.
#include <algorithm>
#include <cmath>

#include "launches/device_calls.hpp"

namespace strait {
namespace {

using kernels::Cast;
using kernels::Exchange;
using kernels::Protocol;
using kernels::Slots;

/// Rounds of slices that are cut so that the hops overlap. `parts`: what a lane has of a slice, in overlap_bytes. What
/// a rank sends in both hops of an all-reduce fills its links; of a reduce or a broadcast one hop would leave most of
/// them idle, so that more rounds pay, and earlier (4 H100).
std::uint32_t overlapping_rounds(Collective collective, double parts) {
  constexpr double reduce_part = 0.3, broadcast_part = 0.55, most_reduce_rounds = 24, most_broadcast_rounds = 12;
  if (collective == Collective::all_reduce) return parts < 1 ? 1 : 3;
  const bool reduces = collective == Collective::reduce;
  const double rounds = std::round(parts / (reduces ? reduce_part : broadcast_part));
  return static_cast<std::uint32_t>(std::clamp(rounds, 1.0, reduces ? most_reduce_rounds : most_broadcast_rounds));
}
/// Likewise through host memory, where each of four steps, up and down the link twice, waits for the one before.
constexpr std::size_t most_host_overlap_rounds = 8, host_overlap_parts = 16;
/// Of messages that are cut so that links carry both ways: more bring no more.
constexpr double most_rounds = 16;

}  // namespace

bool DeviceCalls::has_equal_parts(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::reduce_scatter || collective == Collective::all_to_all;
}

/// Where PCIe takes the time, blocks that only copy have 32 KB or more between two fences, and few of them fill a link.
/// But of long messages through host memory gathers take 5% less time with a block for each lane, and broadcasts take
/// as long (4 H200; other links and numbers of ranks were not measured).
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

/// Of a long message through host memory. Where all ranks write to all others more slots gain nothing, and all-reduces
/// take up to 14% more time, as it seems because they no longer fit into the host's caches (4 H200).
std::uint32_t DeviceCalls::most_lanes(Collective collective) {
  const bool all_write = has_equal_parts(collective) || collective == Collective::reduce;
  return all_write ? large_call_blocks : kernels::max_lanes;
}

/// The same on all ranks. What a group launches together is not long, for all its calls have blocks of one width.
bool DeviceCalls::is_long_through_host(std::size_t message_bytes) const {
  constexpr std::size_t long_message_bytes = 1 << 20;
  return ring_.staged && ring_.ranks > 2 && message_bytes >= long_message_bytes;
}

Slots DeviceCalls::slots_for(const Call& call, bool one_hop, std::size_t message_bytes) const {
  Slots through = protocol_for(call, one_hop, message_bytes);
  through.rounds = rounds_for(call, one_hop, through, message_bytes);
  return through;
}

/// By how much each group of blocks begins after the one before, so that what one writes goes up the link while another
/// waits for its fence, or reads. Of 2 MB and more 12.8 us for all groups together, of less as much less: between four
/// H200 all-reduces and reduce-scatters of 2 MB take a tenth less time so, those of 1 MB 3 to 5%, all-reduces of 16 MB
/// and more up to 2% more; slower links were not measured. `bytes`: of the larger buffer.
std::uint32_t DeviceCalls::host_stagger_ns(Protocol protocol, std::size_t bytes) const {
  constexpr std::size_t most_ns = 1600, bytes_a_ns = 1280;
  if (!ring_.staged || protocol != Protocol::bulk) return 0;
  return static_cast<std::uint32_t>(std::min(bytes / bytes_a_ns, most_ns));
}

/// Where one rank alone writes or takes, links carry one way at any time, and nothing is gained.
std::uint32_t DeviceCalls::host_stagger_ns(const Call& call, bool one_hop, const Slots& through) const {
  if (ring_.ranks < 2 || (one_hop && !has_equal_parts(call.collective))) return 0;
  return host_stagger_ns(through.protocol, buffer_sizes(call, ring_.rank, ring_.ranks).larger_bytes());
}

/// Of messages, likewise, but shorter ones would take longer (of 256 KB 25.5 us for 24.5).
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

/// In how many chunks a lane moves a message, at least. Of two hops, so many that they overlap. Through host memory, so
/// many that links carry both ways at once: what comes is one round behind what is sent, so that of r rounds the r-th
/// part of the time goes by one way only, that of what is sent, and each round costs as much as the link takes for
/// `round_bytes`.
std::uint32_t DeviceCalls::rounds_for(const Call& call, bool one_hop, const Slots& through,
                                      std::size_t message_bytes) const {
  if (!one_hop) {
    if (ring_.staged && through.protocol == Protocol::bulk && call.wire == WireFormat::off) {
      const std::size_t lane_bytes = message_bytes / ring_.slots[static_cast<std::size_t>(Protocol::bulk)].lanes;
      const std::size_t round_bytes = std::max<std::size_t>(borders_.overlap_bytes / host_overlap_parts, 1);
      const std::size_t rounds = (lane_bytes + round_bytes - 1) / round_bytes;
      return static_cast<std::uint32_t>(std::clamp<std::size_t>(rounds, 1, most_host_overlap_rounds));
    }
    // Few blocks are busy, and leave links idle anyway: more rounds than slots make cost them up to 40% more time (4 to
    // 16 blocks of four H200).
    if (has_few_blocks(call) && has_root(call.collective)) return 1;
    const std::size_t lane_bytes = message_bytes / through.lanes;
    return overlapping_rounds(call.collective,
                              static_cast<double>(lane_bytes) / static_cast<double>(borders_.overlap_bytes));
  }
  if (!ring_.staged || through.protocol != Protocol::bulk || !has_equal_parts(call.collective)) return 1;
  const auto round_bytes = static_cast<double>(std::max<std::size_t>(borders_.round_bytes, 1));
  const std::uint32_t messages = cast_of(call) == Cast::multi ? 1 : ring_.ranks - 1;  // that a rank writes
  const double worth = static_cast<double>(message_bytes) * messages / round_bytes;
  return static_cast<std::uint32_t>(std::clamp(std::round(std::sqrt(worth)), 1.0, most_rounds));
}

}  // namespace strait
