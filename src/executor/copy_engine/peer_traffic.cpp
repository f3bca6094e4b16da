#include "executor/copy_engine/peer_traffic.hpp"

#include <algorithm>

namespace strait::copy_engine {
namespace {

using Span = PeerTraffic::Span;

/// Slices consist of whole elements, and are aligned if the buffer is.
constexpr std::size_t grain_bytes = 16;

Span part(const void* data, std::size_t offset, std::size_t bytes) {
  return {static_cast<std::byte*>(const_cast<void*>(data)) + offset, bytes};
}

/// Every rank adds up a slice, and sends the sum to all others, or in a reduce to the root.
PeerTraffic reduce_slices(const CopyCall& call, std::uint32_t rank, std::uint32_t ranks) {
  const bool all = call.collective == Collective::all_reduce, has_output = all || rank == call.root;
  const std::size_t bytes = call.count * size_bytes(call.type);
  const std::size_t slice = (bytes + ranks * grain_bytes - 1) / (ranks * grain_bytes) * grain_bytes;
  const auto slice_of = [&](const void* data, std::uint32_t owner) {
    const std::size_t begin = std::min(bytes, owner * slice);
    return part(data, begin, std::min(slice, bytes - begin));
  };
  PeerTraffic traffic;
  traffic.addends = slice_of(call.send, rank);
  traffic.sums = has_output ? slice_of(call.receive, rank).data : nullptr;
  for (std::uint32_t peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    traffic.contributions[peer] = slice_of(call.send, peer);
    if (all || peer == call.root) traffic.sends[peer] = {traffic.sums, traffic.addends.bytes};
    if (has_output) traffic.receives[peer] = slice_of(call.receive, peer);
  }
  traffic.sends_sums = true;
  traffic.longest_bytes = slice;
  return traffic;
}

/// A broadcast among more than two ranks: the root sends a slice to each of the others, which passes it on.
PeerTraffic broadcast(const CopyCall& call, std::uint32_t rank, std::uint32_t ranks) {
  const std::size_t bytes = call.count * size_bytes(call.type), owners = ranks - 1;
  const std::size_t slice = (bytes + owners * grain_bytes - 1) / (owners * grain_bytes) * grain_bytes;
  const auto slice_of = [&](const void* data, std::uint32_t owner) {
    const std::size_t begin = std::min(bytes, (owner < call.root ? owner : owner - 1) * slice);
    return part(data, begin, std::min(slice, bytes - begin));
  };
  PeerTraffic traffic;
  traffic.longest_bytes = slice;
  traffic.is_passed_on = ranks > 2;
  if (rank == call.root) {
    for (std::uint32_t peer = 0; peer < ranks; ++peer)
      if (peer != rank) traffic.sends[peer] = slice_of(call.send, peer);
    traffic.sends[rank] = part(call.send, 0, bytes);
    traffic.receives[rank] = part(call.receive, 0, bytes);
    return traffic;
  }
  for (std::uint32_t peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    traffic.receives[peer] = slice_of(call.receive, peer == call.root ? rank : peer);
    if (peer != call.root) traffic.sends[peer] = slice_of(call.receive, rank);
  }
  traffic.relayed = call.root;
  return traffic;
}

/// All other collectives: whole blocks of `count` elements.
PeerTraffic blocks(const CopyCall& call, std::uint32_t rank, std::uint32_t ranks) {
  const std::size_t block = call.count * size_bytes(call.type);
  const bool is_root = rank == call.root;
  PeerTraffic traffic;
  traffic.longest_bytes = block;
  for (std::uint32_t peer = 0; peer < ranks; ++peer) {
    const bool peer_is_root = peer == call.root;
    const Span to_peer = part(call.send, peer * block, block), from_peer = part(call.receive, peer * block, block);
    const Span sent = part(call.send, 0, block), received = part(call.receive, 0, block);
    switch (call.collective) {
      case Collective::reduce_scatter:
        if (peer != rank) traffic.contributions[peer] = to_peer;
        break;
      case Collective::all_to_all:
        traffic.sends[peer] = to_peer;
        traffic.receives[peer] = from_peer;
        break;
      case Collective::all_gather:
        traffic.sends[peer] = sent;
        traffic.receives[peer] = from_peer;
        break;
      case Collective::gather:
        if (peer_is_root) traffic.sends[peer] = sent;
        if (is_root) traffic.receives[peer] = from_peer;
        break;
      case Collective::scatter:
        if (is_root) traffic.sends[peer] = to_peer;
        if (peer_is_root) traffic.receives[peer] = received;
        break;
      case Collective::broadcast:
        if (is_root) traffic.sends[peer] = sent;
        if (peer_is_root) traffic.receives[peer] = received;
        break;
      default:
        break;
    }
  }
  if (call.collective == Collective::reduce_scatter) {
    traffic.addends = part(call.send, rank * block, block);
    traffic.sums = static_cast<std::byte*>(call.receive);
  }
  return traffic;
}

}  // namespace

bool PeerTraffic::supports(const CopyCall& call) {
  if (call.count == 0) return false;
  if (is_reduction(call.collective)) return call.op != ReduceOp::premul_sum;
  return Rounds::supports(call.collective);
}

PeerTraffic PeerTraffic::of(const CopyCall& call, std::uint32_t rank, std::uint32_t ranks) {
  if (call.collective == Collective::broadcast && ranks > 2) return broadcast(call, rank, ranks);
  const bool slices = call.collective == Collective::all_reduce || call.collective == Collective::reduce;
  return slices ? reduce_slices(call, rank, ranks) : blocks(call, rank, ranks);
}

void PeerTraffic::place_sums(std::byte* place) {
  sums = place;
  for (Span& message : sends)
    if (message.bytes != 0) message.data = place;
}

}  // namespace strait::copy_engine
