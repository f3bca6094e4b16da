#include "perf/geometry.hpp"

#include "plan/plan.hpp"

namespace strait::perf {
namespace {

std::size_t round_down_to_16_bytes(std::size_t count, DataType type) {
  const std::size_t unit = 16 / size_bytes(type);
  return count / unit * unit;
}

}  // namespace

std::size_t block_count(std::size_t total_count, DataType type, std::uint32_t ranks, std::uint32_t distance) {
  if (ranks == 1) return round_down_to_16_bytes(total_count, type);
  const std::size_t weights = std::size_t{ranks} * (ranks - 1) / 2;
  return round_down_to_16_bytes(total_count / weights * distance, type);
}

Blocks all_to_all_v_blocks(std::size_t total_count, DataType type, std::uint32_t ranks, std::uint32_t rank) {
  Blocks blocks;
  std::size_t sent = 0;
  std::size_t received = 0;
  for (std::uint32_t peer = 0; peer < ranks; ++peer) {
    const std::size_t sends = block_count(total_count, type, ranks, (peer + ranks - rank) % ranks);
    const std::size_t receives = block_count(total_count, type, ranks, (rank + ranks - peer) % ranks);
    blocks.send_counts.push_back(sends);
    blocks.send_offsets.push_back(sent);
    blocks.receive_counts.push_back(receives);
    blocks.receive_offsets.push_back(received);
    sent += sends;
    received += receives;
  }
  return blocks;
}

Geometry geometry(Collective collective, std::size_t bytes, DataType type, std::uint32_t ranks, std::uint32_t rank,
                  std::size_t extra_elements) {
  const std::size_t asked = bytes / size_bytes(type);
  const std::size_t total = asked + extra_elements;
  const std::size_t block = round_down_to_16_bytes(asked / ranks, type) + extra_elements;
  switch (collective) {
    case Collective::all_gather:
    case Collective::gather:
      return {block, block, block * ranks, block * rank, 0, true};
    case Collective::reduce_scatter:
    case Collective::scatter:
      return {block, block * ranks, block, 0, block * rank, true};
    case Collective::all_to_all:
      return {block, block * ranks, block * ranks, 0, 0, true};
    case Collective::all_to_all_v: {
      std::size_t sum = 0;
      for (std::uint32_t distance = 0; distance < ranks; ++distance) sum += block_count(total, type, ranks, distance);
      return {total, sum, sum, 0, 0, false};
    }
    case Collective::send_recv:
      return {total, total, total, 0, 0, false};
    case Collective::barrier:
      return {0, 0, 0, 0, 0, false};
    default:
      return {total, total, total, 0, 0, true};
  }
}

std::size_t algorithm_bytes(Collective collective, const Geometry& g, DataType type, std::uint32_t ranks) {
  // Blocks of all-to-all-v differ: the sum of those that a rank sends.
  const std::size_t count = collective == Collective::all_to_all_v ? g.send_count : g.count;
  return larger_buffer_count(collective, count, ranks) * size_bytes(type);
}

double bus_factor(Collective collective, std::uint32_t ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::send_recv:
      return 1;
    default:
      return (n - 1) / n;
  }
}

}  // namespace strait::perf
