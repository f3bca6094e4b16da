// Calls that write directly into memory that all ranks have registered.
#include <algorithm>

#include "launches/device_calls.hpp"

namespace strait {

using kernels::Protocol;
using kernels::StraightExchange;

namespace {

/// Length of a rank's output from which it pays that ranks meet before anything moves (four H200).
constexpr std::size_t least_straight_bytes = std::size_t{16} << 20;
/// What a warp takes at a time; 4 KB and 16 KB are no better.
constexpr std::uint32_t straight_chunk_bytes = 8 << 10;
constexpr std::uint32_t straight_blocks = 64, long_straight_blocks = 32;
/// Length of a rank's output from which half of the blocks take no longer. Shorter outputs take them 1% longer (four
/// H200).
constexpr std::size_t long_straight_bytes = std::size_t{32} << 20;

}  // namespace

/// Only for calls without a limit of blocks; others were not measured.
bool DeviceCalls::writes_directly(const Call& call) const {
  if (ring_.staged || ring_.ranks < 2 || block_limit(call) != 0 || !call.receive_offsets.empty() ||
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
  const MessageRows rows = rows_of(call);
  const std::uint32_t wanted = rows.bytes * ring_.ranks < long_straight_bytes ? straight_blocks : long_straight_blocks;
  const std::size_t most_blocks = kernels::slots_of(ring_, Protocol::bulk, at_once(wanted)).blocks;
  const std::size_t chunks = (rows.bytes + straight_chunk_bytes - 1) / straight_chunk_bytes * ring_.ranks;
  const std::size_t blocks = std::min(chunks, most_blocks), block_chunks = (chunks + blocks - 1) / blocks;
  StraightExchange exchange{};
  exchange.ring = ring_;
  exchange.width = 1;
  for (std::uint32_t peer = 0; peer < ring_.ranks; ++peer) {
    exchange.send[peer] = {rows.send.at(peer), rows.bytes, straight_chunk_bytes, static_cast<std::uint16_t>(blocks),
                           hash};
    exchange.destinations[peer] = outputs[peer] + ring_.rank * rows.receive.stride_bytes;
  }
  const std::size_t threads = std::min<std::size_t>(block_chunks * 32, kernels::max_threads);
  return {.protocol = Protocol::bulk,
          .argument = exchange,
          .blocks = static_cast<std::uint32_t>(blocks),
          .threads = static_cast<std::uint32_t>(threads)};
}

}  // namespace strait
