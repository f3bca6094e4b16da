// Messages between two ranks: sends and receives, and the blocks of an all-to-all-v.
#include <algorithm>

#include "launches/device_calls.hpp"

namespace strait {

using kernels::Exchange;
using kernels::OfferedMessages;
using kernels::Protocol;
using kernels::Slots;

namespace {

/// Returns whether a rank sends to at most one peer, and receives from at most one.
bool has_one_way_each(const Exchange& exchange) {
  int sends = 0, receives = 0;
  for (std::uint32_t peer = 0; peer < exchange.ring.ranks; ++peer) {
    if (peer == exchange.ring.rank) continue;
    sends += exchange.send[peer].bytes != 0 ? 1 : 0;
    receives += exchange.receive[peer].bytes != 0 ? 1 : 0;
  }
  return sends <= 1 && receives <= 1;
}

}  // namespace

std::vector<DeviceLaunch> DeviceCalls::launches_of(std::span<const Call> messages, const MessageOffers& offers) const {
  Turns turns;
  std::vector<std::uint32_t> sent(ring_.ranks), received(ring_.ranks);
  for (const Call& call : messages) {
    if (call.count == 0) continue;
    const std::uint32_t number = (call.sends ? sent : received)[call.peer]++;
    add_end(call, {call.sends, call.peer, call.sends ? call.send : call.receive, call.count}, offers, number, turns);
  }
  return launches_of(std::move(turns), offers, false);
}

std::vector<DeviceLaunch> DeviceCalls::all_to_all_v(const Call& call, const MessageOffers& offers) const {
  Turns turns;
  const std::size_t element = size_bytes(call.type);
  const auto* from = static_cast<const std::byte*>(call.send);
  const auto* to = static_cast<const std::byte*>(call.receive);
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    add_end(call, {true, peer, from + call.send_offsets[peer] * element, call.send_counts[peer]}, offers, 0, turns);
    add_end(call, {false, peer, to + call.receive_offsets[peer] * element, call.receive_counts[peer]}, offers, 0,
            turns);
  }
  return launches_of(std::move(turns), offers, true);
}

void DeviceCalls::add_end(const Call& call, const End& end, const MessageOffers& offers, std::uint32_t number,
                          Turns& turns) const {
  const std::size_t bytes = end.count * size_bytes(call.type);
  if (bytes == 0) return;
  const Slots through = slots_for(call, true, bytes);  // the cut does not depend on whether the peer knows of offers
  const bool may_be_offered = offers.of && !ring_.staged && end.peer != ring_.rank &&
                              through.protocol == Protocol::bulk && bytes >= least_offered_bytes_;
  // What stays on this rank is copied by a launch that has both ends. In an all-to-all all ranks take part at the same
  // time.
  const bool is_sent = end.sends || end.peer == ring_.rank || call.collective == Collective::all_to_all_v;
  const Part part = through.protocol == Protocol::bulk ? Part::long_ones
                    : is_sent                          ? Part::short_sends
                                                       : Part::short_receives;
  Ends& ends = turns[{number, part}];
  ends.piped = ends.piped && through.piped;
  ends.may_be_offered = ends.may_be_offered || may_be_offered;
  if (may_be_offered && !end.sends) ends.offers[end.peer] = offers.of(end.data, bytes);
  (end.sends ? ends.exchange.send : ends.exchange.receive)[end.peer] =
      kernels::message(through, end.data, bytes, short_hash_of(message_signature(call, end.count)));
}

std::vector<DeviceLaunch> DeviceCalls::launches_of(Turns turns, const MessageOffers& offers, bool at_once) const {
  std::vector<DeviceLaunch> launches;
  for (auto& [turn, ends] : turns) {
    const auto receives = turns.find({turn.number, Part::short_receives});
    if (turn.part == Part::short_sends && receives != turns.end() && !turns.contains({turn.number, Part::long_ones}))
      for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer)
        if (peer != ring_.rank) std::swap(ends.exchange.receive[peer], receives->second.exchange.receive[peer]);
    const Protocol protocol = turn.part == Part::long_ones ? Protocol::bulk : kernels::flagged_protocol(ring_);
    ends.exchange.ring = ring_;
    ends.exchange.stagger_ns = host_stagger_ns(ends.exchange, protocol);
    const std::size_t before = launches.size();
    Call any;
    any.collective = Collective::send_recv;
    // In pipes, data for several peers advances in step. It may wait for one another only if the user asks for few
    // blocks, or for pipes wherever they are possible.
    const bool may_step = has_few_blocks(any) || options_.piped_unit_bytes == 0;
    // A rank that only sends is ahead of its receivers, and is faster through pipes, which do not use offers.
    const bool offers_some =
        std::any_of(std::begin(ends.offers), std::end(ends.offers), [](std::uint64_t offer) { return offer != 0; });
    const bool piped = ends.piped && !offers_some && (may_step || has_one_way_each(ends.exchange));
    launches.emplace_back().argument = ends.exchange;
    shape_last(piped ? piped_slots(any, true, 0) : kernels::slots_of(ring_, protocol, blocks_for(any)), false,
               launches);
    if (launches.size() == before) continue;
    DeviceLaunch& launch = launches.back();
    if (ends.may_be_offered && !launches.back().piped) {
      OfferedMessages messages{std::get<Exchange>(launch.argument), least_offered_bytes_, *offers.registered, {}};
      std::copy(std::begin(ends.offers), std::end(ends.offers), messages.offers);
      launch.argument = messages;
    }
    launch.independent = !at_once && !launch.piped && kernels::depend_on_one_another(ends.exchange, protocol);
    launch.turn = turn.place();
  }
  return launches;
}

}  // namespace strait
