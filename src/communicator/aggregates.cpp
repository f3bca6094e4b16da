#include "communicator/aggregates.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <variant>

#include "base/hash.hpp"
#include "communicator/started_calls.hpp"

namespace strait {
namespace {

using kernels::Aggregate;
using kernels::AggregatedCall;
using kernels::Exchange;
using kernels::Message;

/// Of messages to, or from, all ranks: they lie at equal distances.
struct Row {
  std::byte* first = nullptr;  ///< where that of rank 0 is or would be
  std::size_t stride_bytes = 0;
  std::uint16_t ranks = 0;  ///< bit r: rank r has one
  const Message* any = nullptr;
};
Row row_of(const Message (&messages)[kernels::max_ranks], std::uint32_t ranks) {
  Row row;
  std::uint32_t first_rank = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const Message& message = messages[rank];
    if (message.bytes == 0) continue;
    row.ranks = static_cast<std::uint16_t>(row.ranks | 1u << rank);
    if (row.any == nullptr) {
      row.any = &message;
      first_rank = rank;
    } else if (row.stride_bytes == 0) {
      row.stride_bytes = static_cast<std::size_t>(message.data - row.any->data) / (rank - first_rank);
    }
  }
  if (row.any != nullptr) row.first = row.any->data - first_rank * row.stride_bytes;
  return row;
}

AggregatedCall compact(const Exchange& exchange, std::uint32_t call, std::uint32_t first_lane) {
  const Row send = row_of(exchange.send, exchange.ring.ranks), receive = row_of(exchange.receive, exchange.ring.ranks);
  const Message& message = send.any != nullptr ? *send.any : *receive.any;
  AggregatedCall compact{};
  compact.send = send.first;
  compact.receive = receive.first;
  compact.premul_scalar = exchange.premul_scalar;
  compact.send_stride_bytes = static_cast<std::uint32_t>(send.stride_bytes);
  compact.receive_stride_bytes = static_cast<std::uint32_t>(receive.stride_bytes);
  compact.bytes = static_cast<std::uint32_t>(message.bytes);
  compact.chunk_bytes = message.chunk_bytes;
  compact.pieces = exchange.pieces;
  compact.rounds = exchange.rounds;
  compact.call = call;
  compact.to = send.ranks;
  compact.from = receive.ranks;
  compact.call_hash = message.call_hash;
  compact.first_lane = static_cast<std::uint8_t>(first_lane);
  compact.lanes = static_cast<std::uint8_t>(message.lanes);
  compact.op = exchange.op;
  compact.cast = exchange.cast;
  return compact;
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto begin = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
  return a_bytes != 0 && b_bytes != 0 && begin(a) < begin(b) + b_bytes && begin(b) < begin(a) + a_bytes;
}

/// Whether the order of the calls matters to this rank.
bool are_independent(const kernels::Ring& ring, std::span<const Call> calls) {
  for (std::size_t later = 1; later < calls.size(); ++later) {
    const Call& b = calls[later];
    const BufferSizes of_b = buffer_sizes(b, ring.rank, ring.ranks);
    for (const Call& a : calls.first(later)) {
      if (a.stream != b.stream) return false;
      const BufferSizes of_a = buffer_sizes(a, ring.rank, ring.ranks);
      if (overlap(a.receive, of_a.receive_bytes, b.receive, of_b.receive_bytes) ||
          overlap(a.receive, of_a.receive_bytes, b.send, of_b.send_bytes) ||
          overlap(a.send, of_a.send_bytes, b.receive, of_b.receive_bytes))
        return false;
    }
  }
  return true;
}

void add(const DeviceLaunch& single, const Call& call, std::uint32_t first_lane, AggregateLaunch& launch) {
  const auto& exchange = std::get<Exchange>(single.argument);
  Aggregate& aggregate = launch.argument;
  const std::uint32_t end = first_lane + single.blocks;
  std::fill(aggregate.call_of_lane + first_lane, aggregate.call_of_lane + end,
            static_cast<std::uint8_t>(aggregate.count));
  aggregate.calls[aggregate.count++] = compact(exchange, StartedCalls::mark_of(signature(call)), first_lane);
  launch.blocks = end;
  launch.threads = std::max(launch.threads, single.threads);
}

AggregateLaunch empty_launch(const DeviceLaunch& like, DataType type) {
  AggregateLaunch launch{like.wire, like.reduces, type, {}, 0, 0};
  launch.argument.ring = std::get<Exchange>(like.argument).ring;
  std::fill(std::begin(launch.argument.call_of_lane), std::end(launch.argument.call_of_lane), Aggregate::no_call);
  return launch;
}

struct Share {
  kernels::Slots through;
  bool is_less = false;  ///< than the call would take by itself
};

/// What each call goes through: as many lanes as it would take by itself, or, where all together would take too many, a
/// share by its bytes.
std::vector<Share> shares_of(const DeviceCalls& calls, std::span<const Call> aggregated) {
  std::vector<Share> shares;
  std::vector<std::uint32_t> wanted;
  std::size_t all_bytes = 0;
  for (const Call& call : aggregated) {
    const std::size_t bytes = call.count * size_bytes(call.type);
    shares.push_back({calls.aggregable_slots(call).value()});
    wanted.push_back(kernels::cut(shares.back().through, bytes).lanes);
    all_bytes += bytes;
  }
  const std::uint32_t lanes = shares.front().through.blocks;
  if (std::accumulate(wanted.begin(), wanted.end(), 0u) <= lanes) return shares;
  const std::size_t spare = lanes - shares.size();  // a lane each, and the rest by bytes
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const std::size_t bytes = aggregated[i].count * size_bytes(aggregated[i].type);
    const auto share = static_cast<std::uint32_t>(1 + bytes * spare / all_bytes);
    shares[i].is_less = share < wanted[i];
    shares[i].through.lanes = shares[i].through.blocks = std::min(share, wanted[i]);
  }
  return shares;
}

/// Data that are cut for a share must fit nothing else: a peer that groups its calls differently cuts them differently.
std::uint16_t hash_of_share(std::uint16_t call_hash, std::uint32_t lanes) {
  return static_cast<std::uint16_t>(mix(std::uint64_t{lanes} << 16 | call_hash));
}

}  // namespace

std::size_t aggregated_calls(const DeviceCalls& calls, std::span<const Call> group) {
  std::optional<kernels::Slots> first;
  std::size_t count = 0;
  for (const Call& call : group) {
    if (count == kernels::max_aggregated) break;
    const auto through = calls.aggregable_slots(call);
    if (!through) break;
    // One kernel, and what bounds its blocks.
    const Call& leader = group.front();
    if (first && (through->wire != first->wire || through->blocks != first->blocks ||
                  is_reduction(call.collective) != is_reduction(leader.collective) ||
                  (is_reduction(call.collective) && call.type != leader.type)))
      break;
    if (count == through->blocks) break;
    first = through;
    ++count;
  }
  return std::max<std::size_t>(count, 1);
}

std::vector<AggregateLaunch> launches_of_aggregate(const DeviceCalls& calls, std::span<const Call> aggregated) {
  std::vector<AggregateLaunch> launches;
  const bool together = are_independent(calls.ring(), aggregated);
  const auto shares = shares_of(calls, aggregated);
  std::uint32_t first_lane = 0;
  for (std::size_t i = 0; i < aggregated.size(); ++i) {
    const Call& call = aggregated[i];
    const DeviceLaunch single = calls.aggregable_launch(call, shares[i].through);
    if (launches.empty() || !together) launches.push_back(empty_launch(single, call.type));
    add(single, call, first_lane, launches.back());
    AggregatedCall& added = launches.back().argument.calls[launches.back().argument.count - 1];
    if (shares[i].is_less) added.call_hash = hash_of_share(added.call_hash, shares[i].through.lanes);
    first_lane += single.blocks;
  }
  return launches;
}

}  // namespace strait
