#include "launches/device_calls.hpp"

#include <algorithm>
#include <cstring>

#include "executor/cpu_reducers/reducer_memory.hpp"
#include "kernels/piped.hpp"
#include "kernels/prompt.hpp"
#include "plan/request.hpp"

namespace strait {
namespace {

using kernels::Cast;
using kernels::Exchange;
using kernels::Message;
using kernels::Protocol;
using kernels::Slots;
using kernels::TwoHop;

/// Blocks that begin at different times keep links busier while the first rounds pass from hop to hop. Between four
/// H200 this makes in-place broadcasts of 64 to 256 MB 5 to 8% faster, and all-reduces of 64 MB 2%. With more rounds it
/// makes no difference, and out-of-place broadcasts take 2% longer.
constexpr std::uint32_t peer_stagger_ns = 1500, least_staggered_rounds = 4, most_staggered_rounds = 32;
/// Collectives of equal parts with at least this many bytes use no more than large_call_blocks, unless the user sets
/// another limit: more blocks hardly make them faster (4 H200), and leave no SM to other work.
constexpr std::size_t large_call_bytes = 32 << 20;

/// With fewer blocks than lanes, messages of more than this many bytes per block go in bulk. A block moves several
/// times as much in the loops of bulk as in those of lines, and from this length on that outweighs the fences (2 and 4
/// H200).
constexpr std::size_t lines_bytes_a_block = 48 << 10;

/// A longer message takes so long that a launch of its own costs little.
constexpr std::size_t most_aggregated_bytes = std::size_t{32} << 20;

/// Rounds by which sending runs ahead: while CPU threads add up the chunks of one round, those of the next rounds are
/// on their way.
constexpr std::uint32_t reducers_lead = 3;

/// Returns how many bytes a message finds free in slots, on lanes whose reader has received everything before it. The
/// slots that the reader's last launch took last are not free yet, because they are returned by its next launch. That
/// is one slot of each lane; among more than two ranks three, because two hops may end with a contribution and two
/// results of the same peer in one iteration (two_hop.cuh).
std::size_t free_bytes(const Slots& through, const kernels::Ring& ring) {
  const std::size_t slot_bytes =
      through.slot_bytes / kernels::piece_bytes * kernels::piece_data_bytes(through.protocol);
  const std::uint32_t taken = ring.ranks > 2 ? 3 : 1;
  return through.lanes * (kernels::slot_depth - taken) * slot_bytes;
}

/// Returns the length of the slices that `owners` ranks own. Every slice begins aligned if the buffer does; the last
/// may be shorter.
std::size_t slice_bytes_of(std::size_t bytes, std::size_t owners) {
  constexpr std::size_t grain = 16;
  return (bytes + owners * grain - 1) / (owners * grain) * grain;
}

/// Returns the length of the slice that each rank except the root owns in a reduce with this many rounds. The root owns
/// the rest, as much as crosses in the first round, when there are no results yet that could use its link.
std::size_t slice_beside_root(std::size_t bytes, std::size_t ranks, std::size_t rounds) {
  const std::size_t parts = rounds * (ranks - 1) + 1;
  return slice_bytes_of(bytes * rounds / parts + 1, 1);
}

/// Returns the bit of a call's root, or 0 for calls without one. Those may have a hash in `root` (DeviceQuantized).
std::uint32_t root_bit(const Call& call) { return has_root(call.collective) ? 1u << call.root : 0; }

/// Returns whether each rank that sends, sends only one message, the same for all others.
bool is_multicast(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::broadcast || collective == Collective::barrier;
}

}  // namespace

Slots DeviceCalls::protocol_for(const Call& call, bool one_hop, std::size_t message_bytes) const {
  if (is_piped(call, one_hop, message_bytes)) return piped_slots(call, one_hop, message_bytes);
  const Protocol flagged = kernels::flagged_protocol(ring_);
  const bool is_message = call.collective == Collective::send_recv;
  const std::size_t most_short = is_message ? free_bytes(slots(call, flagged), ring_) : ~std::size_t{0};
  // Two ranks take two hops through peers' memory only if that is forced. These hold back more slots at the end than
  // free_bytes() assumes for two ranks, so bulk is used.
  if (!one_hop && ring_.ranks == 2 && !ring_.staged) return slots(call, Protocol::bulk, message_bytes);
  if (flagged != Protocol::lines) {
    const bool takes_one = is_message || call.collective == Collective::broadcast;
    const bool is_gathered = call.collective == Collective::gather || call.collective == Collective::reduce;
    const std::size_t most = takes_one ? lone_flagged_bytes_ : is_gathered ? to_root_flagged_bytes_ : flagged_bytes_;
    return slots(call, message_bytes > std::min(most, most_short) ? Protocol::bulk : flagged, message_bytes);
  }
  const Slots lines = slots(call, Protocol::lines);
  const bool few_blocks =
      block_limit(call) != 0 && lines.blocks < ring_.slots[static_cast<std::size_t>(Protocol::lines)].lanes;
  // The borders come from measurements on 2 and 4 H200, for one direction, both directions, and two hops. A reduce in
  // two hops is faster over lines at any size.
  if (!few_blocks && !one_hop && call.collective == Collective::reduce) return lines;
  std::size_t most = flagged_bytes_;
  if (few_blocks) most = std::min(most, lines.blocks * lines_bytes_a_block);
  if (!has_root(call.collective)) most = one_hop ? most * 2 : most / 2;
  // A rank that receives from several others fills its link better in bulk: with 8 and 16 MB from each, but not with 4
  // (4 H200).
  if (call.collective == Collective::gather && ring_.ranks > 2) most /= 4;
  if (message_bytes <= std::min(most, most_short)) return lines;
  return takes_many(call) ? slots(call, Protocol::bulk)
                          : kernels::slots_of(ring_, Protocol::bulk, at_once(large_call_blocks));
}

/// Returns whether a call in bulk may use as many blocks as there are lanes, or as the user allows.
bool DeviceCalls::takes_many(const Call& call) const {
  if (block_limit(call) != 0 || ring_.ranks < 3 || !has_equal_parts(call.collective)) return true;
  return buffer_sizes(call, call.root, ring_.ranks).larger_bytes() < large_call_bytes;
}

bool DeviceCalls::takes_one_hop(const Call& call, std::size_t bytes) const {
  // Of the collectives between two ranks, only an all-reduce has slices for both to own.
  const bool has_two =
      call.collective == Collective::all_reduce ||
      (ring_.ranks > 2 && (call.collective == Collective::reduce || call.collective == Collective::broadcast));
  if (!has_two || ring_.ranks < 2) return true;
  if (ring_.staged && call.collective == Collective::broadcast) return true;  // written once, read by all
  const Hops forced = call.algorithm != nullptr ? hops_of(call.algorithm->name) : options_.hops;
  if (forced != Hops::chosen) return forced == Hops::one;
  if (ring_.ranks == 2) return !halves_sums(call, bytes);
  return bytes <= (call.collective == Collective::reduce ? borders_.one_hop_reduce_bytes : borders_.one_hop_bytes);
}

std::vector<DeviceLaunch> DeviceCalls::launches_of(const Call& call, const MessageOffers& offers) const {
  if (call.collective == Collective::all_to_all_v) return all_to_all_v(call, offers);
  std::vector<DeviceLaunch> launches;
  const std::size_t bytes = call.count * size_bytes(call.type);
  if (bytes == 0 && call.collective != Collective::barrier) return launches;
  const bool reduces = is_reduction(call.collective);
  if (takes_one_hop(call, bytes)) {
    const Slots through = slots_for(call, true, bytes);
    fill_in(exchange_in(launches.emplace_back()), call, through, rows_of(call).bytes);
    shape_last(through, reduces, launches);
    return launches;
  }
  const std::size_t owners = call.collective == Collective::all_reduce ? ring_.ranks : ring_.ranks - 1;
  const Slots through = slots_for(call, false, bytes / owners);
  TwoHop two_hop = two_hop_of(call, through, bytes, slice_bytes_of(bytes, owners));
  // Pipes have many rounds, among which one makes no difference.
  if (call.collective == Collective::reduce && !through.piped) {
    two_hop = two_hop_of(call, through, bytes, slice_beside_root(bytes, ring_.ranks, two_hop.rounds));
    two_hop.owners |= root_bit(call);
  }
  const bool by_peers = through.protocol == Protocol::bulk && !ring_.staged;
  const bool is_middling = two_hop.rounds >= least_staggered_rounds && two_hop.rounds <= most_staggered_rounds;
  if (by_peers && ring_.ranks > 2 && is_middling) two_hop.stagger_ns = peer_stagger_ns;
  launches.push_back(launch_of(two_hop, through, reduces));
  if (caller_copies_own(call, launches))
    // The data is there already.
    std::get<TwoHop>(launches.back().argument).output = const_cast<std::byte*>(two_hop.input);
  return launches;
}

DeviceLaunch DeviceCalls::launch_of(const TwoHop& made, const Slots& through, bool reduces) const {
  TwoHop two_hop = made;
  const bool piped = through.piped && kernels::can_be_piped(two_hop);
  const kernels::Shape shape = kernels::shape_of(through, two_hop.lanes, piped);
  two_hop.width = shape.width;
  const std::uint32_t sets = two_hop.results == kernels::Cast::multi ? 2 : 1;
  const std::uint32_t threads =
      piped ? kernels::piped_threads : kernels::threads_for(two_hop.pieces, ring_.ranks, shape.width, sets);
  return {.protocol = through.protocol,
          .reduces = reduces,
          .argument = two_hop,
          .blocks = shape.blocks,
          .threads = threads,
          .piped = piped};
}

std::optional<Slots> DeviceCalls::aggregable_slots(const Call& call) const {
  const std::size_t bytes = call.count * size_bytes(call.type);
  const bool is_one_to_all_alike = has_equal_parts(call.collective) || has_root(call.collective);
  if (!is_one_to_all_alike || bytes == 0 || !takes_many(call)) return {};
  const bool one_hop = takes_one_hop(call, bytes);
  const std::size_t message_bytes = aggregable_bytes(call);
  // The calls of a launch share its lanes, and blocks of a long call serve several of these.
  if (message_bytes > most_aggregated_bytes || is_long_through_host(message_bytes)) return {};
  if (!one_hop && call.collective != Collective::all_reduce) return {};
  Slots through = protocol_for(call, one_hop, message_bytes);
  if (through.piped) return {};
  through.rounds = rounds_for(call, true, through, message_bytes);  // the hops follow one another, without overlap
  return through;
}

std::size_t DeviceCalls::aggregable_bytes(const Call& call) const {
  const std::size_t bytes = call.count * size_bytes(call.type);
  return takes_one_hop(call, bytes) ? bytes : slice_bytes_of(bytes, ring_.ranks);
}

/// If many ranks share the memory, bulk has fewer lanes than packets.
std::optional<Slots> DeviceCalls::bulk_instead(const Call& call, const Slots& through, std::size_t calls,
                                               std::size_t group_bytes) const {
  if (through.protocol != Protocol::packets || group_bytes <= packets_of_a_group * flagged_bytes_) return {};
  Slots bulk = slots(call, Protocol::bulk);
  if (calls > bulk.blocks) return {};
  bulk.rounds = rounds_for(call, true, bulk, aggregable_bytes(call));
  return bulk;
}

DeviceLaunch DeviceCalls::launch_to_reducers(const Call& call) const {
  Slots through = kernels::slots_of(ring_, Protocol::bulk, blocks_for(call));
  if (call.wire != WireFormat::off) through.grain_bytes = cpu_reducers::ReducerMemory::run_bytes(call.wire);
  const std::size_t bytes = call.count * size_bytes(call.type);
  through.rounds = rounds_both_ways(bytes);
  const std::uint16_t hash = short_hash_of(signature(call));
  std::vector<DeviceLaunch> launches(1);
  Exchange& exchange = exchange_in(launches.front());
  exchange.send[cpu_reducers::ReducerMemory::threads] = kernels::message(through, call.send, bytes, hash);
  exchange.receive[cpu_reducers::ReducerMemory::threads] = kernels::message(through, call.receive, bytes, hash);
  exchange.lead = reducers_lead;
  exchange.label = cpu_reducers::Sum{call.type, call.op, call.wire}.label();
  shape_last(through, false, launches);
  return launches.at(0);
}

bool DeviceCalls::caller_copies_own(const Call& call, const std::vector<DeviceLaunch>& launches) const {
  // A copy beside the kernel costs some microseconds. On four H200, calls of 16 and 32 MB take 1 us longer with it than
  // in place; the time with kernels instead was not measured.
  constexpr std::size_t least_bytes = std::size_t{16} << 20;
  return call.collective == Collective::broadcast && call.root == ring_.rank && call.send != call.receive &&
         call.count * size_bytes(call.type) >= least_bytes && !launches.empty() &&
         std::holds_alternative<TwoHop>(launches.front().argument) && !launches.front().piped;
}

Exchange& DeviceCalls::exchange_in(DeviceLaunch& launch) const {
  auto& exchange = std::get<Exchange>(launch.argument);
  exchange.ring = ring_;
  return exchange;
}

void DeviceCalls::shape_last(const Slots& through, bool reduces, std::vector<DeviceLaunch>& launches) const {
  DeviceLaunch& launch = launches.back();
  launch.protocol = through.protocol;
  launch.reduces = reduces;
  auto& exchange = std::get<Exchange>(launch.argument);
  std::uint32_t lanes = 0;
  std::size_t last_bytes = 0;  // most messages have the same length
  bool sends = false, takes = false;
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    sends = sends || (peer != ring_.rank && exchange.send[peer].bytes != 0);
    takes = takes || (peer != ring_.rank && exchange.receive[peer].bytes != 0);
    for (const Message* message : {&exchange.send[peer], &exchange.receive[peer]}) {
      if (message->bytes == 0 || message->bytes == last_bytes) continue;
      last_bytes = message->bytes;
      lanes = std::max<std::uint32_t>(lanes, message->lanes);
      const std::size_t longest = std::min<std::size_t>(message->bytes, message->chunk_bytes);
      exchange.pieces = std::max(exchange.pieces, kernels::pieces_of(through.protocol, longest));
      exchange.rounds =
          std::max(exchange.rounds, kernels::rounds_of(message->bytes, {message->chunk_bytes, message->lanes}));
    }
  }
  if (!sends || !takes) exchange.lead = 0;
  if (lanes == 0) return launches.pop_back();
  launch.piped = through.piped && kernels::can_be_piped(exchange);
  launch.prompt = kernels::can_be_prompt(exchange, through.protocol, reduces);
  const kernels::Shape shape = kernels::shape_of(through, lanes, launch.piped);
  exchange.width = shape.width;
  launch.blocks = shape.blocks;
  launch.threads = launch.piped    ? kernels::piped_threads
                   : launch.prompt ? kernels::prompt_threads(exchange)
                                   : kernels::threads_for(exchange.pieces, ring_.ranks, shape.width);
}

Cast DeviceCalls::cast_of(const Call& call) const {
  const bool has_peers = ring_.ranks > 1;  // without peers there is nothing to send, not even once for all
  return has_peers && ring_.staged && is_multicast(call.collective) ? Cast::multi : Cast::single;
}

MessageRows DeviceCalls::rows_of(const Call& call) const {
  const std::size_t block = call.count * size_bytes(call.type);
  auto* const from = static_cast<std::byte*>(const_cast<void*>(call.send));
  auto* const to = static_cast<std::byte*>(call.receive);
  const std::uint32_t everybody = (1u << ring_.ranks) - 1, root = root_bit(call);
  const bool is_root = call.root == ring_.rank;
  switch (call.collective) {
    case Collective::all_reduce:
      return {block, {from, 0, everybody}, {to, 0, everybody}};
    case Collective::reduce_scatter:
      return {block, {from, block, everybody}, {to, 0, everybody}};
    case Collective::all_gather:
      return {block, {from, 0, everybody}, {to, block, everybody}};
    case Collective::all_to_all:
      return {block, {from, block, everybody}, {to, block, everybody}};
    // The root's own part appears at both ends.
    case Collective::broadcast:
      return {block, {from, 0, is_root ? everybody : 0}, {to, 0, root}};
    case Collective::scatter:
      return {block, {from, block, is_root ? everybody : 0}, {to, 0, root}};
    case Collective::reduce:
      return {block, {from, 0, root}, {to, 0, is_root ? everybody : 0}};
    case Collective::gather:
      return {block, {from, 0, root}, {to, block, is_root ? everybody : 0}};
    default:  // a barrier sends a token from every rank to every rank
      return {8, {barrier_tokens_, 0, everybody}, {barrier_tokens_ + 8 * kernels::max_ranks, 8, everybody}};
  }
}

MessageRows DeviceCalls::rows_of_sums(const Call& call) const {
  const std::size_t bytes = call.count * size_bytes(call.type), slice = slice_bytes_of(bytes, ring_.ranks);
  const std::uint32_t everybody = (1u << ring_.ranks) - 1;
  auto* const from = static_cast<std::byte*>(const_cast<void*>(call.send));
  auto* const to = static_cast<std::byte*>(call.receive);
  return {slice, {from, slice, everybody}, {to + ring_.rank * slice, 0, everybody}, bytes};
}

void DeviceCalls::fill_in(Exchange& exchange, const Call& call, const Slots& through, std::size_t length) const {
  exchange.op = call.op;
  exchange.type = call.type;
  exchange.premul_scalar = call.premul_scalar;
  exchange.cast = cast_of(call);
  exchange.stagger_ns = host_stagger_ns(call, true, through);
  const MessageRows rows = rows_of(call);
  kernels::Cutter part(through, short_hash_of(signature(call)));
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    if (rows.send.has(peer)) exchange.send[peer] = part(rows.send.at(peer), length);
    if (rows.receive.has(peer)) exchange.receive[peer] = part(rows.receive.at(peer), length);
  }
  if (has_own_layout(call)) place_blocks(exchange, call, part);
}

/// For a call that has_own_layout().
void DeviceCalls::place_blocks(Exchange& exchange, const Call& call, kernels::Cutter& part) const {
  const std::size_t element = size_bytes(call.type);
  const MessageRows rows = rows_of(call);
  // If one side has a single block, its length is that of this rank's block among the blocks at the other end.
  const auto block = [&](const MessageRow& row, std::uint32_t peer, const std::vector<std::size_t>& offsets,
                         const std::vector<std::size_t>& counts, const std::vector<std::size_t>& counts_there) {
    const bool is_alone = row.stride_bytes == 0;
    const std::vector<std::size_t>& lengths = is_alone ? counts_there : counts;
    const std::size_t bytes = lengths.empty() ? rows.bytes : lengths[is_alone ? ring_.rank : peer] * element;
    return part(is_alone || offsets.empty() ? row.at(peer) : row.first + offsets[peer] * element, bytes);
  };
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    if (rows.send.has(peer))
      exchange.send[peer] = block(rows.send, peer, call.send_offsets, call.send_counts, call.receive_counts);
    if (rows.receive.has(peer))
      exchange.receive[peer] = block(rows.receive, peer, call.receive_offsets, call.receive_counts, call.send_counts);
  }
}

TwoHop DeviceCalls::two_hop_of(const Call& call, const Slots& through, std::size_t length, std::size_t slice) const {
  TwoHop two_hop{};
  const std::uint32_t everybody = (1u << ring_.ranks) - 1, root = root_bit(call);
  two_hop.ring = ring_;
  two_hop.input = static_cast<const std::byte*>(call.send);
  two_hop.output = static_cast<std::byte*>(call.receive);
  two_hop.bytes = length;
  two_hop.contributors = call.collective == Collective::broadcast ? root : everybody;
  two_hop.owners = two_hop.first_owners = call.collective == Collective::all_reduce ? everybody : everybody & ~root;
  two_hop.receivers = call.collective == Collective::all_reduce  ? everybody
                      : call.collective == Collective::broadcast ? everybody & ~root
                                                                 : root;
  two_hop.slice_bytes = slice;
  const kernels::Cut cut = kernels::cut(through, two_hop.slice_bytes);
  two_hop.chunk_bytes = cut.chunk_bytes;
  two_hop.lanes = cut.lanes;
  two_hop.call_hash = short_hash_of(signature(call));
  two_hop.pieces =
      kernels::pieces_of(through.protocol, std::min<std::size_t>(two_hop.slice_bytes, two_hop.chunk_bytes));
  two_hop.rounds = kernels::rounds_of(std::min(two_hop.slice_bytes, two_hop.bytes), cut);
  two_hop.op = call.op;
  two_hop.type = call.type;
  two_hop.results = ring_.staged && call.collective == Collective::all_reduce ? Cast::multi : Cast::single;
  two_hop.premul_scalar = call.premul_scalar;
  two_hop.stagger_ns = host_stagger_ns(call, false, through);
  return two_hop;
}

}  // namespace strait
