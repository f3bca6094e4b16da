// Which calls go through pipes (kernels/piped.cuh), and how.
#include <algorithm>

#include "kernels/piped.hpp"
#include "launches/device_calls.hpp"

namespace strait {
namespace {

using kernels::Protocol;
using kernels::Slots;

/// Which calls of a collective go through pipes: the least lengths of their messages, as multiples of
/// STRAIT_PIPED_BYTES. There are different lengths for few blocks, where pipes are faster as soon as messages take many
/// rounds; for somewhat more blocks, where the other kernels are closer; for calls without a limit; and for a limit of
/// many blocks. `never`: not at all.
constexpr std::size_t never = 0;
struct Piping {
  std::size_t few_blocks, no_limit, many_blocks = never;
  std::uint32_t blocks = DeviceCalls::large_call_blocks;  ///< blocks of a call without a limit
  std::size_t no_limit_end = never;                       ///< without a limit, only shorter messages use pipes
  std::size_t some_blocks = few_blocks;
  std::uint32_t least_some_blocks = 20;  ///< the limit from which `some_blocks` applies
};
/// From measurements on 4 H200. Without a limit, pipes pay only where large parts take most of the time. They also pay
/// for messages, each of which has a third of the slots and therefore chunks so short that other kernels wait more than
/// they move. More blocks gain nothing, or lose, and leave less to other work.
constexpr Piping piping_of_more(Collective collective) {
  switch (collective) {
    case Collective::broadcast:
      return {.few_blocks = never,
              .no_limit = 10,
              .many_blocks = 10,
              .blocks = 32,
              .some_blocks = 1,
              .least_some_blocks = 16};
    case Collective::scatter:
      return {.few_blocks = 1, .no_limit = 8, .blocks = 24};
    case Collective::send_recv:
      return {.few_blocks = 2, .no_limit = 8, .blocks = 32};
    case Collective::all_to_all_v:
      return {.few_blocks = 4, .no_limit = never};
    case Collective::all_gather:
    case Collective::all_to_all:
      return {.few_blocks = 1, .no_limit = 16, .many_blocks = 16, .blocks = 32};
    case Collective::reduce:
      return {.few_blocks = 16, .no_limit = 32, .many_blocks = 32, .blocks = 32, .some_blocks = 32};
    case Collective::all_reduce:
      return {.few_blocks = 1, .no_limit = 8, .blocks = 32};
    case Collective::reduce_scatter:
      return {.few_blocks = 1, .no_limit = 16, .blocks = 32, .some_blocks = 8, .least_some_blocks = 32};
    default:
      return {.few_blocks = 1, .no_limit = never};
  }
}
/// For two ranks, from measurements on 2 H100. Without a limit, calls that run beside computation use pipes as soon as
/// pair_blocks are no slower than NCCL: reductions of gradients (by PyTorch in parts of 25 MiB) and gathers of
/// parameters. All SMs would be up to a fifth faster, but would leave none to other work. So do calls that pair_blocks
/// carry no slower than all SMs. The longest messages and all-to-alls, which NCCL moves as fast as its SMs can, use all
/// SMs again: 128 blocks store 367 GB/s to the peer, 32 of them 351 (2 H200).
constexpr std::uint32_t pair_blocks = 32;
constexpr Piping piping_of_pair(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return {.few_blocks = 8, .no_limit = 12, .blocks = pair_blocks};
    case Collective::all_gather:
      return {.few_blocks = 4, .no_limit = 12, .blocks = pair_blocks};
    case Collective::reduce_scatter:
      return {.few_blocks = 12, .no_limit = 12, .blocks = pair_blocks};
    case Collective::all_to_all:
      return {.few_blocks = 4, .no_limit = 16, .blocks = pair_blocks, .no_limit_end = 128};
    case Collective::send_recv:
      return {.few_blocks = 4, .no_limit = 32, .blocks = 24, .no_limit_end = 128};
    case Collective::all_to_all_v:
      return {.few_blocks = 4, .no_limit = never, .blocks = pair_blocks};
    default:
      return {.few_blocks = never, .no_limit = never, .blocks = pair_blocks};
  }
}

/// For two ranks, reduces whose computation keeps kernels with flagged data from reaching the rate of the link: those
/// other than sums, of the types that share kernels. With elements of 8 bits, which cost most, 32 blocks take 1.5 times
/// as long as the link. Where bulk has plain loops (combine_all()), all blocks in bulk are faster from some length on
/// (2 H200).
constexpr Piping slow_pair_reduce(DataType type, ReduceOp op) {
  const std::uint32_t blocks = size_bytes(type) == 1 ? 2 * pair_blocks : pair_blocks;
  const bool has_plain_loops = op == ReduceOp::min || op == ReduceOp::max || op == ReduceOp::prod;
  return {.few_blocks = never, .no_limit = 8, .blocks = blocks, .no_limit_end = has_plain_loops ? 24 : never};
}
bool is_slow_with_flags(const Call& call, std::uint32_t averaged) {
  return kernels::kernel_type(call.type) == kernels::KernelType::others &&
         !kernels::adds_up(call.type, call.op, averaged);
}

Piping piping(const Call& call, const kernels::Ring& ring) {
  if (ring.ranks != 2) return piping_of_more(call.collective);
  const bool is_slow = call.collective == Collective::reduce && is_slow_with_flags(call, ring.averaged);
  return is_slow ? slow_pair_reduce(call.type, call.op) : piping_of_pair(call.collective);
}

/// Blocks of an all-reduce of two ranks in two hops: the fewest that are no slower than NCCL. More are up to a
/// twentieth faster by themselves, but less of their time is hidden beside matrix products. From some length on, fewer
/// blocks with longer slots are even faster.
constexpr std::uint32_t halved_blocks = 20, long_halved_blocks = 16;
constexpr std::size_t long_halved_bytes = std::size_t{192} << 20;
/// With fewer blocks, only copies gain from pipes.
constexpr std::uint32_t least_adding_blocks = 12;
/// With fewer blocks, the additions of two ranks take most of the time. This many blocks are used only if the user asks
/// for them.
constexpr std::uint32_t least_one_hop_blocks = 24;
/// Chunk length of a reduce-scatter. With 24 KB, for which the slots of four ranks have room, one of 1 GB takes 7%
/// longer.
constexpr std::uint32_t reduce_scatter_chunk_bytes = 12 << 10;
/// Lanes of an all-reduce and the length of their slots, which should stay in the L2 cache. With slots of 24 KB, 16
/// blocks take 7% less time for 256 MB with 64 lanes than with 128, and a third more with 32. 32 blocks take 12% less
/// time for 64 MB with slots of 12 KB on 128 lanes than with slots of 24 KB, and 4% less than other kernels with 64
/// blocks. From some length of a slice on, 16 blocks are no slower.
constexpr std::uint32_t sums_width = 4, least_sums_lanes = 64, sums_slots_bytes = least_sums_lanes * (24 << 10);
constexpr std::uint32_t long_sums_blocks = 16;
constexpr std::size_t long_slice_bytes = std::size_t{64} << 20;
/// Slots of two ranks should stay in the L2 cache (50 MB) beside the data that passes through it: with 12 MB of slots,
/// 32 blocks on two H100 took 816 us for an all-reduce of 256 MB, and with 37 MB 1071.
constexpr std::size_t pair_slots_bytes = 12 << 20;
constexpr std::uint32_t pair_width = 4;

}  // namespace

/// All ranks decide alike. A rank whose buffers are not aligned as asynchronous copies require uses the other kernels
/// in bulk.
bool DeviceCalls::is_piped(const Call& call, bool one_hop, std::size_t message_bytes) const {
  const bool reduces = is_reduction(call.collective);
  if (!ring_.has_async_copies) return false;
  if (reduces && !kernels::is_piped_reduction(call.op)) return false;
  // Parts that are contiguous in memory all begin aligned only if their length is a multiple of 16.
  const bool has_parts = call.collective == Collective::all_gather || call.collective == Collective::all_to_all ||
                         call.collective == Collective::reduce_scatter || call.collective == Collective::gather ||
                         call.collective == Collective::scatter;
  if (has_parts && message_bytes % 16 != 0) return false;
  if (options_.piped_unit_bytes == 0) return true;
  const bool few_blocks = has_few_blocks(call), is_pair = ring_.ranks == 2;
  const bool asks_for_many = block_limit(call) != 0 && !few_blocks;
  const Piping least = piping(call, ring_);
  const std::size_t of_few = block_limit(call) < least.least_some_blocks ? least.few_blocks : least.some_blocks;
  const std::size_t factor = few_blocks ? of_few : asks_for_many ? least.many_blocks : least.no_limit;
  // Twice the length, so that one hop and two hops are compared alike.
  const std::size_t bytes = is_pair && !one_hop ? message_bytes * 2 : message_bytes;
  if (factor == never || bytes < options_.piped_unit_bytes * factor) return false;
  const bool has_end = block_limit(call) == 0 && least.no_limit_end != never;
  if (has_end && bytes >= options_.piped_unit_bytes * least.no_limit_end) return false;
  return !few_blocks || !reduces || block_limit(call) >= least_adding_blocks;
}

bool DeviceCalls::halves_sums(const Call& call, std::size_t bytes) const {
  return block_limit(call) < least_one_hop_blocks && is_piped(call, false, bytes / 2);
}

std::uint32_t DeviceCalls::piped_blocks(const Call& call, bool one_hop, std::size_t message_bytes) const {
  if (block_limit(call) != 0) return block_limit(call);
  // Reductions that cost the adders more get as many blocks as help.
  const bool is_costly = is_reduction(call.collective) &&
                         kernels::piped_kernel_type(call.type, call.op, ring_.averaged) == kernels::KernelType::others;
  if (is_costly) return at_once(piping(call, ring_).blocks);
  if (ring_.ranks != 2 && call.collective == Collective::all_reduce && message_bytes >= long_slice_bytes)
    return at_once(long_sums_blocks);
  if (ring_.ranks != 2 || one_hop) return at_once(piping(call, ring_).blocks);
  return at_once(message_bytes * 2 < long_halved_bytes ? halved_blocks : long_halved_blocks);
}

Slots DeviceCalls::piped_slots(const Call& call, bool one_hop, std::size_t message_bytes) const {
  Slots through = kernels::slots_of(ring_, Protocol::bulk, piped_blocks(call, one_hop, message_bytes));
  through.piped = true;
  through.blocks_unpiped = blocks_for(call);
  if (ring_.ranks != 2) {
    if (call.collective == Collective::all_reduce) {
      through.lanes = std::min(through.lanes, std::max(through.blocks * sums_width, least_sums_lanes));
      through.slot_bytes = std::min(through.slot_bytes, sums_slots_bytes / through.lanes);
    }
    if (call.collective == Collective::reduce_scatter && block_limit(call) == 0)
      through.slot_bytes = std::min(through.slot_bytes, reduce_scatter_chunk_bytes);
    return through;
  }
  through.lanes = std::min(through.lanes, through.blocks * pair_width);
  const std::size_t slot_bytes = pair_slots_bytes / (kernels::slot_depth * through.lanes);
  through.slot_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(slot_bytes, through.slot_bytes));
  return through;
}

}  // namespace strait
