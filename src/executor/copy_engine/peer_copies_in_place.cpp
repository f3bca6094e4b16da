// Calls that write directly into the outputs of peers.
#include <algorithm>
#include <string>
#include <utility>

#include "base/hash.hpp"
#include "executor/copy_engine/peer_copies.hpp"

namespace strait::copy_engine {
namespace {

/// The last chunk is passed on after the root has sent everything, which costs the time of one of this many parts.
constexpr std::size_t wanted_relayed_chunks = 16;
/// While one lane saves a chunk of this length, the other lane sends. Longer chunks would only delay the beginning.
constexpr std::size_t most_saved_bytes = std::size_t{16} << 20;
/// For each peer. For all peers together the limit is PeerCopies::most_chunks.
constexpr std::size_t most_saved_chunks = 128;

bool is_written_over(const CopyCall& call) {
  return call.collective == Collective::all_to_all && call.send == call.receive;
}

}  // namespace

bool PeerCopies::supports_in_place(const CopyCall& call) const {
  if (call.count == 0) return false;
  if (is_written_over(call)) {
    const std::size_t most = std::min(most_saved_chunks, most_chunks / (setup_.ranks - 1));
    return setup_.window_bytes != 0 &&
           cut_in_place(call, PeerTraffic::of(call, setup_.rank, setup_.ranks)).chunks <= most;
  }
  return call.collective == Collective::all_gather || call.collective == Collective::all_to_all ||
         call.collective == Collective::broadcast;
}

bool PeerCopies::goes_in_chunks(const CopyCall& call) const {
  return is_written_over(call) || PeerTraffic::of(call, setup_.rank, setup_.ranks).is_passed_on;
}

PeerCopies::Cut PeerCopies::cut_in_place(const CopyCall& call, const PeerTraffic& traffic) const {
  const std::size_t longest_bytes = traffic.longest_bytes;
  if (is_written_over(call))
    return cut_into(longest_bytes, wanted_chunks,
                    std::min(setup_.window_bytes / PeerWords::lanes / grain_bytes * grain_bytes, most_saved_bytes));
  return cut_into(longest_bytes, traffic.is_passed_on ? wanted_relayed_chunks : 1, longest_bytes);
}

PeerCopies::InPlaceCall PeerCopies::in_place_call(const CopyCall& call, const PeerAddresses& outputs) const {
  InPlaceCall in_place{
      .traffic = PeerTraffic::of(call, setup_.rank, setup_.ranks), .destinations = {}, .saves = is_written_over(call)};
  for (std::uint32_t peer = 0; peer < setup_.ranks; ++peer) {
    CopyCall theirs = call;
    theirs.receive = outputs[peer];
    in_place.destinations[peer] = PeerTraffic::of(theirs, peer, setup_.ranks).receives[setup_.rank];
  }
  in_place.cut = cut_in_place(call, in_place.traffic);
  return in_place;
}

Status PeerCopies::enqueue_in_place(const CopyCall& call, const PeerAddresses& outputs, std::uint32_t hash,
                                    StreamDriver::Stream stream) {
  if (!supports_in_place(call))
    return fail(Code::unsupported, std::string(name(call.collective)) + " by copies into the outputs of peers");
  const InPlaceCall in_place = in_place_call(call, outputs);
  if (in_place.saves) hash = static_cast<std::uint32_t>(mix(hash));
  hash = std::max(hash, 1u);
  STRAIT_TRY(begin(hash, stream));
  const PeerTraffic::Span &from = in_place.traffic.sends[setup_.rank], &to = in_place.traffic.receives[setup_.rank];
  const bool has_own = from.bytes != 0 && from.data != to.data;
  std::vector<Lane*> lanes = lanes_of(false, message_lanes(in_place.traffic, in_place.cut), false);
  if (has_own) lanes.push_back(&pulls_[0]);
  STRAIT_TRY(fork(hash, stream, lanes));
  for (Lane* lane : lanes) STRAIT_TRY(flush(*lane));
  for (std::uint32_t chunk = 0; chunk < in_place.cut.chunks; ++chunk) {
    // All chunks are saved before any is waited for, because streams may share a hardware queue.
    for (std::uint32_t k = 1; k < setup_.ranks && in_place.saves; ++k) STRAIT_TRY(save(in_place, k, chunk));
    for (std::uint32_t k = 1; k < setup_.ranks; ++k) STRAIT_TRY(place(in_place, k, chunk));
  }
  if (has_own)
    STRAIT_TRY(setup_.driver->copy({.to = to.data, .from = from.data, .row_bytes = to.bytes}, pulls_[0].stream));
  STRAIT_TRY(join(lanes, stream));
  PeerTraffic told;
  if (in_place.saves || in_place.traffic.is_passed_on) told.receives = in_place.destinations;
  return end(told, stream);
}

/// Saves a chunk that a peer will overwrite, and tells the peer.
Status PeerCopies::save(const InPlaceCall& in_place, std::uint32_t after, std::uint32_t chunk) {
  const std::uint32_t own = setup_.rank, peer = (own + after) % setup_.ranks, parity = chunk % PeerWords::lanes;
  const PeerTraffic::Span piece = in_place.traffic.sends[peer].chunk(in_place.cut.chunk_bytes, chunk);
  Lane& lane = messages_[message_lane(in_place.traffic, after, chunk)];
  STRAIT_TRY(setup_.driver->copy({.to = setup_.windows_here[peer] + parity * in_place.cut.chunk_bytes,
                                  .from = piece.data,
                                  .row_bytes = piece.bytes},
                                 lane.stream));
  tell(lane, words_.arrived_count(peer, own, parity), chunk + 1);
  return flush(lane);
}

Status PeerCopies::place(const InPlaceCall& in_place, std::uint32_t after, std::uint32_t chunk) {
  const std::uint32_t own = setup_.rank, peer = (own + after) % setup_.ranks, parity = chunk % PeerWords::lanes;
  const PeerTraffic& traffic = in_place.traffic;
  if (!traffic.sends[peer].has_chunk(in_place.cut.chunk_bytes, chunk)) return {};
  const PeerTraffic::Span from = traffic.sends[peer].chunk(in_place.cut.chunk_bytes, chunk);
  const PeerTraffic::Span to = in_place.destinations[peer].chunk(in_place.cut.chunk_bytes, chunk);
  Lane& lane = messages_[message_lane(traffic, after, chunk)];
  if (in_place.saves) wait_for(lane, words_.arrived_count(own, peer, parity), chunk + 1);
  if (traffic.relayed) wait_for(lane, words_.arrived_count(own, *traffic.relayed, parity), chunk + 1);
  STRAIT_TRY(flush(lane));
  const std::byte* const source =
      in_place.saves ? setup_.windows_here[peer] + parity * in_place.cut.chunk_bytes : from.data;
  STRAIT_TRY(setup_.driver->copy({.to = to.data, .from = source, .row_bytes = from.bytes}, lane.stream));
  if (traffic.is_passed_on && !traffic.relayed) tell(lane, words_.arrived_count(peer, own, parity), chunk + 1);
  return flush(lane);
}

}  // namespace strait::copy_engine
