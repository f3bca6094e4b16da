#include "launches/device_aggregates.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <optional>

#include "base/hash.hpp"

namespace strait {
namespace {

using kernels::Aggregate;
using kernels::AggregatedCall;

/// A range of memory; an empty one overlaps nothing.
struct Extent {
  std::uintptr_t begin, end;
  bool overlaps(const Extent& other) const { return begin < other.end && other.begin < end; }
};
Extent extent_of(const void* pointer, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  return bytes != 0 ? Extent{begin, begin + bytes} : Extent{~std::uintptr_t{0}, 0};
}

/// Returns what a call reads besides its send buffer: the factor of a premul_sum, if that lies in memory.
Extent factor_of(const Call& call) {
  const bool is_memory = call.op == ReduceOp::premul_sum && call.premul_scalar.is_address;
  return extent_of(call.premul_scalar.element(), is_memory ? size_bytes(call.type) : 0);
}

/// Returns whether the calls may run in any order, as far as this rank is concerned: they are on one stream, and none
/// writes what another reads or writes.
bool are_independent(const kernels::Ring& ring, std::span<const Call> calls) {
  std::array<Extent, kernels::max_aggregated> sent, received, factors;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].stream != calls.front().stream) return false;
    const BufferSizes sizes = buffer_sizes(calls[i], ring.rank, ring.ranks);
    sent[i] = extent_of(calls[i].send, sizes.send_bytes);
    received[i] = extent_of(calls[i].receive, sizes.receive_bytes);
    factors[i] = factor_of(calls[i]);
    const auto reads = [&](std::size_t reader, std::size_t writer) {
      return sent[reader].overlaps(received[writer]) || factors[reader].overlaps(received[writer]);
    };
    for (std::size_t before = 0; before < i; ++before)
      if (received[i].overlaps(received[before]) || reads(before, i) || reads(i, before)) return false;
  }
  return true;
}

MessageRows rows_of(const DeviceCalls& calls, const Call& call) {
  return calls.takes_two_hops(call) ? calls.rows_of_sums(call) : calls.rows_of(call);
}

/// What one of several aggregated calls gets.
struct Share {
  kernels::Slots through;
  std::size_t bytes = 0;          ///< size of each of its messages
  bool has_fewer_blocks = false;  ///< it has fewer blocks than the call would take by itself
};

std::uint32_t blocks_of(const Share& share) {
  return kernels::shape_of(share.through, kernels::cut(share.through, share.bytes).lanes).blocks;
}

/// Returns through which slots each call goes: with as many blocks as it would take by itself, or, if all together
/// would take too many, with a share in proportion to its bytes. Blocks keep their number of lanes.
std::vector<Share> shares_of(const DeviceCalls& calls, std::span<const Call> group) {
  std::vector<Share> shares;
  std::size_t all_bytes = 0;
  for (const Call& call : group) {
    shares.push_back({calls.aggregable_slots(call).value(), calls.aggregable_bytes(call)});
    all_bytes += shares.back().bytes;
  }
  std::vector<std::uint32_t> wanted;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (const auto bulk = calls.bulk_instead(group[i], shares[i].through, group.size(), all_bytes))
      shares[i].through = *bulk;
    wanted.push_back(blocks_of(shares[i]));
  }
  const std::uint32_t blocks = shares.front().through.blocks;
  if (std::accumulate(wanted.begin(), wanted.end(), 0u) <= blocks) return shares;
  const std::size_t spare = blocks - shares.size();  // after one block for each; divided in proportion to bytes
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto share = static_cast<std::uint32_t>(1 + shares[i].bytes * spare / all_bytes);
    kernels::Slots& through = shares[i].through;
    const std::uint32_t width = through.lanes / through.blocks;
    shares[i].has_fewer_blocks = share < wanted[i];
    through.blocks = std::min(share, wanted[i]);
    through.lanes = through.blocks * width;
  }
  return shares;
}

/// Returns the hash by which peers recognise the call's data. Data that is cut for a share, or goes two hops by these
/// kernels, must match nothing else: a peer that groups its calls differently cuts it differently.
std::uint16_t hash_of(const CallSignature& signature, const Share& share, bool two_hops) {
  const std::uint16_t hash = short_hash_of(signature);
  if (!share.has_fewer_blocks && !two_hops) return hash;
  return static_cast<std::uint16_t>(mix(std::uint64_t{share.through.lanes} << 16 | hash));
}

AggregatedCall aggregated(const DeviceCalls& calls, const Call& call, const Share& share) {
  const MessageRows rows = rows_of(calls, call);
  const kernels::Cut parts = kernels::cut(share.through, rows.bytes);
  const kernels::Shape shape = kernels::shape_of(share.through, parts.lanes);
  const CallSignature signature = strait::signature(call);
  AggregatedCall aggregated{};
  aggregated.send = rows.send.first;
  aggregated.receive = rows.receive.first;
  aggregated.premul_scalar = call.premul_scalar;
  aggregated.send_stride_bytes = static_cast<std::uint32_t>(rows.send.stride_bytes);
  aggregated.receive_stride_bytes = static_cast<std::uint32_t>(rows.receive.stride_bytes);
  aggregated.bytes = static_cast<std::uint32_t>(rows.bytes);
  aggregated.whole_bytes = static_cast<std::uint32_t>(rows.whole_bytes);
  aggregated.chunk_bytes = parts.chunk_bytes;
  aggregated.pieces = kernels::pieces_of(share.through.protocol, std::min(rows.bytes, std::size_t{parts.chunk_bytes}));
  aggregated.rounds = kernels::rounds_of(rows.bytes, parts);
  aggregated.call = mark_of(signature);
  aggregated.to = static_cast<std::uint16_t>(rows.send.ranks);
  aggregated.from = static_cast<std::uint16_t>(rows.receive.ranks);
  aggregated.call_hash = hash_of(signature, share, rows.whole_bytes != 0);
  aggregated.lanes = static_cast<std::uint8_t>(parts.lanes);
  aggregated.blocks = static_cast<std::uint8_t>(shape.blocks);
  aggregated.width = static_cast<std::uint8_t>(shape.width);
  aggregated.op = call.op;
  aggregated.type = call.type;
  aggregated.cast = calls.cast_of(call);
  return aggregated;
}

AggregateLaunch empty_launch(const kernels::Ring& ring, kernels::Protocol protocol, const Call& like) {
  AggregateLaunch launch{
      .protocol = protocol, .reduces = is_reduction(like.collective), .type = like.type, .stream = like.stream};
  launch.argument.ring = ring;
  std::fill(std::begin(launch.argument.call_index_of_block), std::end(launch.argument.call_index_of_block),
            Aggregate::no_call);
  return launch;
}

void add(const AggregatedCall& call, AggregateLaunch& launch) {
  Aggregate& aggregate = launch.argument;
  launch.blocks = std::uint32_t{call.first_block} + call.blocks;
  launch.threads = std::max(launch.threads, kernels::threads_for(call.pieces, aggregate.ring.ranks, call.width));
  std::fill(aggregate.call_index_of_block + call.first_block, aggregate.call_index_of_block + launch.blocks,
            static_cast<std::uint8_t>(aggregate.count));
  aggregate.calls[aggregate.count++] = call;
}

}  // namespace

std::size_t aggregated_calls(const DeviceCalls& calls, std::span<const Call> group) {
  std::optional<kernels::Slots> first;
  std::size_t count = 0;
  for (const Call& call : group) {
    if (count == kernels::max_aggregated) break;
    const auto through = calls.aggregable_slots(call);
    if (!through) break;
    // All must use one kernel, and have the same limit of blocks.
    const Call& leader = group.front();
    if (first && (through->protocol != first->protocol || call.max_sms != leader.max_sms ||
                  is_reduction(call.collective) != is_reduction(leader.collective) ||
                  (is_reduction(call.collective) && call.type != leader.type)))
      break;
    if (count == through->blocks) break;
    first = through;
    ++count;
  }
  return std::max<std::size_t>(count, 1);
}

std::vector<AggregateLaunch> launches_of_aggregate(const DeviceCalls& calls, std::span<const Call> group) {
  std::vector<AggregateLaunch> launches;
  const bool together = are_independent(calls.ring(), group);
  const auto shares = shares_of(calls, group);
  std::uint32_t first_lane = 0, first_block = 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    AggregatedCall call = aggregated(calls, group[i], shares[i]);
    call.first_lane = static_cast<std::uint8_t>(first_lane);
    call.first_block = static_cast<std::uint8_t>(first_block);
    if (launches.empty() || !together)
      launches.push_back(empty_launch(calls.ring(), shares[i].through.protocol, group[i]));
    add(call, launches.back());
    first_block += call.blocks;
    first_lane += std::uint32_t{call.blocks} * call.width;
  }
  return launches;
}

}  // namespace strait
