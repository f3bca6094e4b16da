// Calls that go straight into what all ranks have registered.
#include "communicator/device_calls.hpp"

namespace strait {

using kernels::Message;
using kernels::Slots;
using kernels::StraightExchange;
using kernels::Wire;

namespace {

/// Of a rank's output, from which on it is worth that ranks meet before anything moves (four H200).
constexpr std::size_t least_straight_bytes = std::size_t{8} << 20;
/// What a block writes to one peer before it turns to the next: long enough that all of its threads have much under
/// way.
constexpr std::uint32_t straight_chunk_bytes = 64 << 10;

}  // namespace

/// Of three ranks and more that may have all blocks: of others it was not measured.
bool DeviceCalls::goes_straight(const Call& call) const {
  if (ring_.staged || ring_.ranks <= 2 || bound(call) != 0 || !call.receive_offsets.empty() ||
      call.wire != WireFormat::off)
    return false;
  const bool writes_over_inputs = call.collective == Collective::all_to_all && call.send == call.receive;
  if ((call.collective != Collective::all_gather && call.collective != Collective::all_to_all) || writes_over_inputs)
    return false;
  return call.count * size_bytes(call.type) * ring_.ranks >= least_straight_bytes;
}

DeviceLaunch DeviceCalls::straight_launch_of(const Call& call,
                                             const std::array<std::byte*, kernels::max_ranks>& outputs,
                                             std::uint16_t hash) const {
  Slots through = kernels::slots_of(ring_, Wire::bulk, at_once(large_call_blocks));
  through.lanes = through.blocks;
  through.slot_bytes = straight_chunk_bytes;
  const MessageRows rows = rows_of(call);
  const Message part = kernels::message(through, nullptr, rows.bytes, hash);
  StraightExchange exchange{};
  exchange.ring = ring_;
  exchange.width = 1;
  exchange.pieces = kernels::pieces_of(Wire::bulk, std::min<std::size_t>(rows.bytes, part.chunk_bytes));
  exchange.rounds = kernels::rounds_of(rows.bytes, {part.chunk_bytes, part.lanes});
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    exchange.send[peer] = part;
    exchange.send[peer].data = rows.send.at(peer);
    exchange.there[peer] = outputs[peer] + ring_.rank * rows.receive.stride_bytes;
  }
  return {Wire::bulk, false, exchange, part.lanes, kernels::threads_for(exchange.pieces, ring_.ranks, 1)};
}

}  // namespace strait
