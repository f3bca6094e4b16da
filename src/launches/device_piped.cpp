// Which calls go through pipes (kernels/piped.cuh), and how.
#include <algorithm>

#include "kernels/piped.hpp"
#include "launches/device_calls.hpp"

namespace strait {
namespace {

using kernels::Protocol;
using kernels::Slots;

/// The calls of a collective that go through pipes, as multiples of STRAIT_PIPED_BYTES that their messages have at
/// least: with few blocks, where pipes beat the other kernels as soon as messages take many rounds; with some more,
/// where other kernels are nearer; without a bound; and where many are asked for. Nowhere: never.
constexpr std::size_t never = 0;
struct Piping {
  std::size_t few_blocks, no_bound, many_blocks = never;
  std::uint32_t blocks = DeviceCalls::large_call_blocks;  ///< without a bound
  std::size_t no_bound_end = never;                       ///< without a bound only shorter ones
  std::size_t some_blocks = few_blocks;
  std::uint32_t least_some_blocks = 20;  ///< bound from which that is so
};
/// As 4 H200 showed: without a bound only where large parts take most of the time, and of messages, which each take a
/// third of the slots, in chunks so short that other kernels wait more than they move. More blocks bring no more, or
/// less, and leave less to what is computed beside.
constexpr Piping piping_of_more(Collective collective) {
  switch (collective) {
    case Collective::broadcast:
      return {.few_blocks = never,
              .no_bound = 10,
              .many_blocks = 10,
              .blocks = 32,
              .some_blocks = 1,
              .least_some_blocks = 16};
    case Collective::scatter:
      return {.few_blocks = 1, .no_bound = 8, .blocks = 24};
    case Collective::send_recv:
      return {.few_blocks = 2, .no_bound = 8, .blocks = 32};
    case Collective::all_to_all_v:
      return {.few_blocks = 4, .no_bound = never};
    case Collective::all_gather:
    case Collective::all_to_all:
      return {.few_blocks = 1, .no_bound = 16, .many_blocks = 16, .blocks = 32};
    case Collective::reduce:
      return {.few_blocks = 16, .no_bound = 32, .many_blocks = 32, .blocks = 32, .some_blocks = 32};
    case Collective::all_reduce:
      return {.few_blocks = 1, .no_bound = 8, .blocks = 32};
    case Collective::reduce_scatter:
      return {.few_blocks = 1, .no_bound = 16, .blocks = 32, .some_blocks = 8, .least_some_blocks = 32};
    default:
      return {.few_blocks = 1, .no_bound = never};
  }
}
/// Of two ranks, as 2 H100 showed: without a bound what is computed beside, as gradients are reduced (by PyTorch in
/// parts of 25 MiB) and parameters gathered, as soon as pair_blocks are no slower than NCCL: all that there are would
/// be up to a fifth faster, and leave no SM to anything else. And what pair_blocks move no slower than all. The longest
/// of what NCCL moves as fast as its SMs can, messages and all-to-alls, takes all again: 128 blocks store 367 GB/s to
/// the peer, 32 of them 351 (2 H200).
constexpr std::uint32_t pair_blocks = 32;
constexpr Piping piping_of_pair(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return {.few_blocks = 8, .no_bound = 12, .blocks = pair_blocks};
    case Collective::all_gather:
      return {.few_blocks = 4, .no_bound = 12, .blocks = pair_blocks};
    case Collective::reduce_scatter:
      return {.few_blocks = 12, .no_bound = 12, .blocks = pair_blocks};
    case Collective::all_to_all:
      return {.few_blocks = 4, .no_bound = 16, .blocks = pair_blocks, .no_bound_end = 128};
    case Collective::send_recv:
      return {.few_blocks = 4, .no_bound = 32, .blocks = 24, .no_bound_end = 128};
    case Collective::all_to_all_v:
      return {.few_blocks = 4, .no_bound = never, .blocks = pair_blocks};
    default:
      return {.few_blocks = never, .no_bound = never, .blocks = pair_blocks};
  }
}

/// Of two ranks, a reduce that kernels whose data bears flags compute no faster than their links are: of what is no
/// sum, of the types that share kernels. Of elements of 8 bits, which cost most, 32 blocks take half as long again as
/// the link does. From some length on all blocks in bulk are faster, where these have plain loops (combine_all(); 2
/// H200).
constexpr Piping slow_pair_reduce(DataType type, ReduceOp op) {
  const std::uint32_t blocks = size_bytes(type) == 1 ? 2 * pair_blocks : pair_blocks;
  const bool has_plain_loops = op == ReduceOp::min || op == ReduceOp::max || op == ReduceOp::prod;
  return {.few_blocks = never, .no_bound = 8, .blocks = blocks, .no_bound_end = has_plain_loops ? 24 : never};
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

/// Of an all-reduce of two ranks in two hops as few as are no slower than NCCL: more are up to a twentieth faster by
/// themselves, and beside matrix products hide less. From some length on fewer of them with longer slots are even
/// faster.
constexpr std::uint32_t halved_blocks = 20, long_halved_blocks = 16;
constexpr std::size_t long_halved_bytes = std::size_t{192} << 20;
/// With fewer, only copies gain.
constexpr std::uint32_t least_adding_blocks = 12;
/// With fewer, what blocks of two ranks add up takes the time. As many are taken only where asked for.
constexpr std::uint32_t least_one_hop_blocks = 24;
/// A reduce-scatter's chunks: in 24 KB, as slots of four ranks have room for, one of 1 GB takes 7% longer.
constexpr std::uint32_t reduce_scatter_chunk_bytes = 12 << 10;
/// Lanes of an all-reduce, and their slots, which should stay in the L2 cache: of 24 KB each 16 blocks take 7% less
/// time for 256 MB with 64 lanes than with 128; with 32 a third more. 32 blocks take 12% less for 64 MB with slots of
/// 12 KB on 128 lanes than with 24, and 4% less than other kernels of 64 blocks; from some length of a slice on 16 are
/// no slower.
constexpr std::uint32_t sums_width = 4, least_sums_lanes = 64, sums_slots_bytes = least_sums_lanes * (24 << 10);
constexpr std::uint32_t long_sums_blocks = 16;
constexpr std::size_t long_slice_bytes = std::size_t{64} << 20;
/// Slots that two ranks use should stay in the L2 cache (50 MB), beside what passes through it: in 12 MB of them an
/// all-reduce of 256 MB took 32 blocks of two H100 816 us, in 37 MB 1071.
constexpr std::size_t pair_slots_bytes = 12 << 20;
constexpr std::uint32_t pair_width = 4;

}  // namespace

/// As all ranks decide alike: a rank whose buffers begin where asynchronous copies cannot goes the other way in bulk.
bool DeviceCalls::is_piped(const Call& call, bool one_hop, std::size_t message_bytes) const {
  const bool reduces = is_reduction(call.collective);
  if (!ring_.has_async_copies) return false;
  if (reduces && !kernels::is_piped_reduction(call.op)) return false;
  // One after another in memory, parts begin aligned only if they are of such a length.
  const bool has_parts = call.collective == Collective::all_gather || call.collective == Collective::all_to_all ||
                         call.collective == Collective::reduce_scatter || call.collective == Collective::gather ||
                         call.collective == Collective::scatter;
  if (has_parts && message_bytes % 16 != 0) return false;
  if (options_.piped_bytes == 0) return true;
  const bool few_blocks = has_few_blocks(call), is_pair = ring_.ranks == 2;
  const bool asks_for_many = bound(call) != 0 && !few_blocks;
  const Piping least = piping(call, ring_);
  const std::size_t of_few = bound(call) < least.least_some_blocks ? least.few_blocks : least.some_blocks;
  const std::size_t factor = few_blocks ? of_few : asks_for_many ? least.many_blocks : least.no_bound;
  const std::size_t bytes = is_pair && !one_hop ? message_bytes * 2 : message_bytes;  // of both ways alike
  if (factor == never || bytes < options_.piped_bytes * factor) return false;
  const bool has_end = bound(call) == 0 && least.no_bound_end != never;
  if (has_end && bytes >= options_.piped_bytes * least.no_bound_end) return false;
  return !few_blocks || !reduces || bound(call) >= least_adding_blocks;
}

bool DeviceCalls::halves_sums(const Call& call, std::size_t bytes) const {
  return bound(call) < least_one_hop_blocks && is_piped(call, false, bytes / 2);
}

std::uint32_t DeviceCalls::piped_blocks(const Call& call, bool one_hop, std::size_t message_bytes) const {
  if (bound(call) != 0) return bound(call);
  // What costs adders more gets as many as help.
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
    if (call.collective == Collective::reduce_scatter && bound(call) == 0)
      through.slot_bytes = std::min(through.slot_bytes, reduce_scatter_chunk_bytes);
    return through;
  }
  through.lanes = std::min(through.lanes, through.blocks * pair_width);
  const std::size_t slot_bytes = pair_slots_bytes / (kernels::slot_depth * through.lanes);
  through.slot_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(slot_bytes, through.slot_bytes));
  return through;
}

}  // namespace strait
