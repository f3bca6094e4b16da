// Calls in wire formats whose data is encoded on its way.
#include <algorithm>
#include <utility>

#include "launches/device_calls.hpp"

namespace strait {

using kernels::Exchange;
using kernels::Protocol;
using kernels::Slots;
using kernels::TwoHop;

namespace {

/// Through host memory, calls of at least this many bytes use no more than this many blocks: the link takes most of the
/// time, and other work can use the remaining SMs. With this limit two H100 train a transformer 17% faster than with
/// 128 blocks, 5% faster than with 64, and 11% faster than with 32. Calls by themselves take from a tenth less to a
/// tenth more time. (PyTorch reduces gradients in parts of 25 MiB.)
constexpr std::size_t large_staged_bytes = std::size_t{24} << 20;
constexpr std::uint32_t large_staged_blocks = 48;

}  // namespace

/// Returns the slots for a message of this many elements, with lengths counted in elements.
Slots DeviceCalls::encoded_slots(const Call& call, bool one_hop, std::size_t elements) const {
  const bool leaves_sms = ring_.staged && block_limit(call) == 0 &&
                          buffer_sizes(call, ring_.rank, ring_.ranks).larger_bytes() >= large_staged_bytes;
  const std::uint32_t blocks = blocks_for(call);
  Slots through = kernels::slots_of(ring_, Protocol::bulk, leaves_sms ? std::min(blocks, large_staged_blocks) : blocks);
  through.rounds = rounds_for(call, one_hop, through, wire::blocks_of(elements) * wire::block_bytes(call.wire));
  through.grain_bytes = wire::granular_run_elements;
  through.slot_bytes = through.slot_bytes / wire::granular_run_bytes(call.wire) * wire::granular_run_elements;
  return through;
}

bool DeviceCalls::pays_to_encode(const Call& call) const {
  return buffer_sizes(call, ring_.rank, ring_.ranks).larger_bytes() >= encoded_bytes();
}

std::vector<DeviceLaunch> DeviceCalls::encoded_launches_of(const Call& call) const {
  const kernels::Encoding encoding{static_cast<std::uint32_t>(size_bytes(call.type)),
                                   is_reduction(call.collective) && call.op == ReduceOp::premul_sum, call.residual,
                                   static_cast<const std::byte*>(call.send)};
  std::vector<DeviceLaunch> launches;
  if (call.count == 0) return launches;
  if (call.collective == Collective::all_reduce) {
    const std::size_t slice = (wire::blocks_of(call.count) + ring_.ranks - 1) / ring_.ranks * wire::block_elements;
    const Slots through = encoded_slots(call, false, slice);
    launches.push_back(launch_of(two_hop_of(call, through, call.count, slice), through, true));
    launches[0].argument = kernels::EncodedTwoHop{std::get<TwoHop>(launches[0].argument), encoding};
  } else {
    const Slots through = encoded_slots(call, true, call.count);
    fill_in(exchange_in(launches.emplace_back()), call, through, call.count);
    shape_last(through, is_reduction(call.collective), launches);
    launches[0].argument = kernels::EncodedExchange{std::get<Exchange>(launches[0].argument), encoding};
  }
  launches[0].encoding = call.wire;
  return launches;
}

}  // namespace strait
