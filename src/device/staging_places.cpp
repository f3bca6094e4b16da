#include "device/staging_places.hpp"

#include "base/cpus.hpp"
#include "topology/numa_nodes.hpp"

namespace strait {
namespace {

constexpr std::uint32_t half_bits = 16, half = (1u << half_bits) - 1;

std::uint32_t half_of(const std::optional<std::uint32_t>& node) { return node && *node < half ? *node + 1 : 0; }

std::optional<std::uint32_t> node_of(std::uint32_t half_word) {
  return half_word == 0 ? std::nullopt : std::optional(half_word - 1);
}

void add(std::vector<PlacedPart>& parts, std::size_t offset, std::size_t size_bytes,
         const std::optional<std::uint32_t>& node) {
  if (node) parts.push_back({offset, size_bytes, *node});
}

}  // namespace

RankNodes RankNodes::find(const std::string& bus_id, const std::vector<std::uint32_t>& cores, const std::string& root) {
  RankNodes nodes;
  nodes.gpu = numa_node_of_pci(root, bus_id);
  nodes.threads = numa_node_of_cpus(root, cores.empty() ? allowed_cpus() : cores);
  if (!nodes.threads) nodes.threads = nodes.gpu;
  return nodes;
}

std::uint32_t RankNodes::word() const { return half_of(gpu) | half_of(threads) << half_bits; }

RankNodes RankNodes::of_word(std::uint32_t word) { return {node_of(word & half), node_of(word >> half_bits)}; }

std::vector<PlacedPart> places_of_arena(std::size_t size_bytes, const RankNodes& rank) {
  std::vector<PlacedPart> parts;
  add(parts, 0, size_bytes, rank.gpu);
  return parts;
}

std::vector<PlacedPart> places_of_windows(const copy_engine::StagedWindows& windows,
                                          const std::vector<RankNodes>& ranks) {
  std::vector<PlacedPart> parts;
  for (std::uint32_t slot = 0; slot < windows.depth; ++slot)
    for (std::uint32_t rank = 0; rank < windows.ranks; ++rank)
      add(parts, windows.upload(slot, rank), windows.chunk_bytes, ranks[rank].gpu);
  return parts;
}

std::vector<PlacedPart> places_of_reducers(const cpu_reducers::ReducerMemory& memory, std::size_t offset,
                                           std::uint32_t threads, const std::vector<RankNodes>& ranks) {
  std::vector<PlacedPart> parts;
  const std::size_t lane_bytes = memory.slots_bytes() / memory.lanes;
  for (std::uint32_t lane = 0; lane < memory.lanes; ++lane) {
    // LaneReducers: of the threads of all ranks, thread t has the lanes t, t + threads, ...
    const std::uint32_t adding = lane / threads % memory.ranks;
    add(parts, offset + memory.results() + lane * lane_bytes, lane_bytes, ranks[adding].threads);
  }
  for (std::uint32_t rank = 0; rank < memory.ranks; ++rank)
    add(parts, offset + memory.up(rank), memory.uploads(rank) + memory.slots_bytes() - memory.up(rank),
        ranks[rank].gpu);
  return parts;
}

}  // namespace strait
