#include "communicator/device_calls.hpp"

#include <algorithm>
#include <cstring>

#include "executor/cpu_reducers/reducer_memory.hpp"

namespace strait {
namespace {

using kernels::Cast;
using kernels::Exchange;
using kernels::Message;
using kernels::Slots;
using kernels::TwoHop;
using kernels::Wire;

/// Up to here one hop, which sends everything to everybody, beats two, which send twice but less (4x H200).
constexpr std::size_t one_hop_limit_bytes = 512 << 10;
constexpr std::size_t one_hop_reduce_limit_bytes = 1 << 20;
/// The same through host memory, where bytes cost twenty times as much.
constexpr std::size_t staged_one_hop_limit_bytes = 32 << 10;
constexpr std::size_t staged_one_hop_reduce_limit_bytes = 1 << 20;
/// Slices from this on a lane are cut so that the hops overlap.
constexpr std::size_t overlap_from_bytes = 12 << 10;
constexpr std::size_t staged_overlap_from_bytes = 32 << 10;  ///< a round through host memory costs more
constexpr std::size_t overlap_rounds = 3;

/// With fewer blocks than lanes, messages of more than this for each block go in bulk: its loops move several times as
/// much a block as those of lines, and that outweighs its fences from here on (2 and 4 H200).
constexpr std::size_t lines_bytes_a_block = 48 << 10;

/// While CPU threads add up one round's chunks, the next ones are under way.
constexpr std::uint32_t reducers_lead = 2;

std::uint16_t hash_of(const CallSignature& signature) {
  std::uint64_t h = (signature.what ^ signature.count * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
  h ^= h >> 32;
  return static_cast<std::uint16_t>(h ^ h >> 16);
}

/// Whether a rank sends the same to all others, and nothing but that.
bool is_multicast(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::broadcast || collective == Collective::barrier;
}

}  // namespace

Slots DeviceCalls::slots(Wire wire) const { return kernels::slots_of(ring_, wire, options_.max_sms); }

Slots DeviceCalls::slots_for(const Call& call, bool one_hop, std::size_t message_bytes) const {
  const Wire flagged = kernels::flagged_wire(ring_);
  if (flagged != Wire::lines) return slots(message_bytes > options_.flagged_bytes ? Wire::bulk : flagged);
  const Slots lines = slots(Wire::lines);
  const bool few_blocks = lines.blocks < ring_.slots[static_cast<std::size_t>(Wire::lines)].lanes;
  // What 2 and 4 H200 showed: one way, both ways, two hops. A reduce in two hops is faster in lines at any size.
  if (!one_hop && call.collective == Collective::reduce && !few_blocks) return lines;
  std::size_t most = options_.flagged_bytes;
  if (few_blocks) most = std::min(most, lines.blocks * lines_bytes_a_block);
  if (!has_root(call.collective)) most = one_hop ? most * 2 : most / 2;
  return message_bytes > most ? slots(Wire::bulk) : lines;
}

Slots DeviceCalls::slots_for_any() const {
  return slots(kernels::flagged_wire(ring_) == Wire::lines ? Wire::lines : Wire::bulk);
}

bool DeviceCalls::takes_one_hop(const Call& call, std::size_t bytes) const {
  // Between two ranks, an all-reduce alone has slices for both to own.
  const bool has_two =
      call.collective == Collective::all_reduce ||
      (ring_.ranks > 2 && (call.collective == Collective::reduce || call.collective == Collective::broadcast));
  if (!has_two || ring_.ranks < 2) return true;
  if (ring_.staged && call.collective == Collective::broadcast) return true;  // written once, read by all
  if (options_.algorithm == "one_hop") return true;
  if (options_.algorithm == "two_hop") return false;
  if (ring_.ranks == 2) return true;
  if (ring_.staged)
    return bytes <=
           (call.collective == Collective::reduce ? staged_one_hop_reduce_limit_bytes : staged_one_hop_limit_bytes);
  return bytes <= (call.collective == Collective::reduce ? one_hop_reduce_limit_bytes : one_hop_limit_bytes);
}

std::vector<DeviceLaunch> DeviceCalls::launches_of(const Call& call) const {
  std::vector<DeviceLaunch> launches;
  const std::size_t bytes = call.count * size_bytes(call.type);
  if (bytes == 0 && call.collective != Collective::barrier && call.collective != Collective::all_to_all_v)
    return launches;
  const bool reduces = is_reduction(call.collective);
  if (takes_one_hop(call, bytes)) {
    // Where messages differ in length, not all ranks know the longest.
    const Slots through = call.collective == Collective::all_to_all_v ? slots_for_any() : slots_for(call, true, bytes);
    add(exchange_of(call, through), through, reduces, launches);
    return launches;
  }
  const std::size_t owners = call.collective == Collective::all_reduce ? ring_.ranks : ring_.ranks - 1;
  const Slots through = slots_for(call, false, bytes / owners);
  TwoHop two_hop = two_hop_of(call, through);
  const kernels::Shape shape = kernels::shape_of(through, two_hop.lanes);
  two_hop.width = shape.width;
  launches.push_back(
      {through.wire, reduces, two_hop, shape.blocks, kernels::threads_for(two_hop.pieces, ring_.ranks, shape.width)});
  return launches;
}

DeviceLaunch DeviceCalls::launch_to_reducers(const Call& call) const {
  const Slots through = slots(Wire::bulk);
  const std::size_t bytes = call.count * size_bytes(call.type);
  const std::uint16_t hash = hash_of(signature(call));
  Exchange exchange{};
  exchange.ring = ring_;
  exchange.send[cpu_reducers::ReducerMemory::threads] = kernels::message(through, call.send, bytes, hash);
  exchange.receive[cpu_reducers::ReducerMemory::threads] = kernels::message(through, call.receive, bytes, hash);
  exchange.lead = reducers_lead;
  std::vector<DeviceLaunch> launches;
  add(exchange, through, false, launches);
  return launches.at(0);
}

std::vector<DeviceLaunch> DeviceCalls::meeting_of(const Call& call) const {
  Call barrier;
  barrier.collective = Collective::barrier;
  const Slots through = slots_for(barrier, true, 0);
  Exchange exchange = exchange_of(barrier, through);
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer)
    exchange.send[peer].call_hash = exchange.receive[peer].call_hash = hash_of(signature(call));
  std::vector<DeviceLaunch> launches;
  add(exchange, through, false, launches);
  return launches;
}

bool DeviceCalls::leaves_own(const Call& call) const {
  return call.collective == Collective::broadcast && call.root == ring_.rank && call.send != call.receive &&
         !takes_one_hop(call, call.count * size_bytes(call.type));
}

std::vector<DeviceLaunch> DeviceCalls::launches_of(std::span<const Call> messages) const {
  const Slots through = slots_for_any();
  std::vector<Exchange> exchanges;
  std::vector<std::uint32_t> sent(ring_.ranks), received(ring_.ranks);
  for (const Call& call : messages) {
    const std::size_t bytes = call.count * size_bytes(call.type);
    if (bytes == 0) continue;
    const std::uint32_t turn = (call.sends ? sent : received)[call.peer]++;
    if (turn >= exchanges.size()) {
      exchanges.emplace_back();
      exchanges.back().ring = ring_;
    }
    Message& place = (call.sends ? exchanges[turn].send : exchanges[turn].receive)[call.peer];
    place = kernels::message(through, call.sends ? call.send : call.receive, bytes, hash_of(signature(call)));
  }
  std::vector<DeviceLaunch> launches;
  for (const Exchange& exchange : exchanges) add(exchange, through, false, launches);
  return launches;
}

void DeviceCalls::add(Exchange exchange, const Slots& through, bool reduces,
                      std::vector<DeviceLaunch>& launches) const {
  std::uint32_t lanes = 0;
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer)
    for (const Message* message : {&exchange.send[peer], &exchange.receive[peer]}) {
      if (message->bytes == 0) continue;
      lanes = std::max<std::uint32_t>(lanes, message->lanes);
      const std::size_t longest = std::min<std::size_t>(message->bytes, message->chunk_bytes);
      exchange.pieces = std::max(exchange.pieces, kernels::pieces_of(through.wire, longest));
      exchange.rounds =
          std::max(exchange.rounds, kernels::rounds_of(message->bytes, {message->chunk_bytes, message->lanes}));
    }
  if (lanes == 0) return;
  const kernels::Shape shape = kernels::shape_of(through, lanes);
  exchange.width = shape.width;
  const std::uint32_t threads = kernels::threads_for(exchange.pieces, ring_.ranks, shape.width);
  launches.push_back({through.wire, reduces, exchange, shape.blocks, threads});
}

Exchange DeviceCalls::exchange_of(const Call& call, const Slots& through) const {
  Exchange exchange{};
  exchange.ring = ring_;
  exchange.op = call.op;
  std::memcpy(&exchange.premul_scalar, call.premul_scalar.data(), sizeof exchange.premul_scalar);
  exchange.cast = ring_.staged && is_multicast(call.collective) ? Cast::multi : Cast::single;
  if (has_root(call.collective))
    fill_rooted(exchange, call, through);
  else
    fill_blocks(exchange, call, through);
  return exchange;
}

/// What every rank does alike.
void DeviceCalls::fill_blocks(Exchange& exchange, const Call& call, const Slots& through) const {
  const std::size_t element = size_bytes(call.type), block = call.count * element;
  const std::uint16_t hash = hash_of(signature(call));
  const auto* from = static_cast<const std::byte*>(call.send);
  auto* to = static_cast<std::byte*>(call.receive);
  const auto part = [&](const void* data, std::size_t bytes) { return kernels::message(through, data, bytes, hash); };
  const auto place = [&](const std::vector<std::size_t>& offsets, std::uint32_t peer) {
    return offsets.empty() ? peer * block : offsets[peer] * element;
  };
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    Message& send = exchange.send[peer];
    Message& receive = exchange.receive[peer];
    switch (call.collective) {
      case Collective::all_reduce:
        send = part(from, block);
        receive = part(to, block);
        break;
      case Collective::reduce_scatter:
        send = part(from + place(call.send_offsets, peer), block);
        receive = part(to, block);
        break;
      case Collective::all_gather:
        send = part(from, block);
        receive = part(to + place(call.receive_offsets, peer), block);
        break;
      case Collective::all_to_all:
        send = part(from + peer * block, block);
        receive = part(to + peer * block, block);
        break;
      case Collective::all_to_all_v:
        send = kernels::message(through, from + call.send_offsets[peer] * element, call.send_counts[peer] * element,
                                hash_of(message_signature(call, call.send_counts[peer])));
        receive =
            kernels::message(through, to + call.receive_offsets[peer] * element, call.receive_counts[peer] * element,
                             hash_of(message_signature(call, call.receive_counts[peer])));
        break;
      default:  // a barrier: a token from everybody to everybody
        send = part(barrier_tokens_, 8);
        receive = part(barrier_tokens_ + 8 * (kernels::max_ranks + peer), 8);
        break;
    }
  }
}

void DeviceCalls::fill_rooted(Exchange& exchange, const Call& call, const Slots& through) const {
  const std::size_t bytes = call.count * size_bytes(call.type);
  const std::uint16_t hash = hash_of(signature(call));
  const auto* from = static_cast<const std::byte*>(call.send);
  auto* to = static_cast<std::byte*>(call.receive);
  const bool is_root = ring_.rank == call.root;
  const bool from_root = call.collective == Collective::broadcast || call.collective == Collective::scatter;
  const std::size_t send_stride = call.collective == Collective::scatter ? bytes : 0;
  const std::size_t receive_stride = call.collective == Collective::gather ? bytes : 0;
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    const bool sends = from_root ? is_root : peer == call.root;
    const bool receives = from_root ? peer == call.root : is_root;
    if (sends) exchange.send[peer] = kernels::message(through, from + peer * send_stride, bytes, hash);
    if (receives) exchange.receive[peer] = kernels::message(through, to + peer * receive_stride, bytes, hash);
  }
  // The root's own part needs both ends.
  if (is_root) {
    exchange.send[ring_.rank] = kernels::message(through, from + ring_.rank * send_stride, bytes, hash);
    exchange.receive[ring_.rank] = kernels::message(through, to + ring_.rank * receive_stride, bytes, hash);
  }
}

TwoHop DeviceCalls::two_hop_of(const Call& call, const Slots& through) const {
  TwoHop two_hop{};
  const std::uint32_t everybody = (1u << ring_.ranks) - 1, root = 1u << call.root;
  two_hop.ring = ring_;
  two_hop.input = static_cast<const std::byte*>(call.send);
  two_hop.output = static_cast<std::byte*>(call.receive);
  two_hop.bytes = call.count * size_bytes(call.type);
  two_hop.contributors = call.collective == Collective::broadcast ? root : everybody;
  two_hop.owners = call.collective == Collective::all_reduce ? everybody : everybody & ~root;
  two_hop.receivers = call.collective == Collective::all_reduce  ? everybody
                      : call.collective == Collective::broadcast ? everybody & ~root
                                                                 : root;
  const std::size_t owners = call.collective == Collective::all_reduce ? ring_.ranks : ring_.ranks - 1;
  constexpr std::size_t grain = 16;  // every slice but the last begins aligned if the buffer does
  two_hop.slice_bytes = (two_hop.bytes + owners * grain - 1) / (owners * grain) * grain;
  const bool overlaps =
      two_hop.slice_bytes / through.lanes >= (ring_.staged ? staged_overlap_from_bytes : overlap_from_bytes);
  const kernels::Cut cut = kernels::cut(through, two_hop.slice_bytes, overlaps ? overlap_rounds : 1);
  two_hop.chunk_bytes = cut.chunk_bytes;
  two_hop.lanes = cut.lanes;
  two_hop.call_hash = hash_of(signature(call));
  two_hop.pieces = kernels::pieces_of(through.wire, std::min<std::size_t>(two_hop.slice_bytes, two_hop.chunk_bytes));
  two_hop.rounds = kernels::rounds_of(std::min(two_hop.slice_bytes, two_hop.bytes), cut);
  two_hop.op = call.op;
  two_hop.results = ring_.staged && call.collective == Collective::all_reduce ? Cast::multi : Cast::single;
  std::memcpy(&two_hop.premul_scalar, call.premul_scalar.data(), sizeof two_hop.premul_scalar);
  return two_hop;
}

}  // namespace strait
