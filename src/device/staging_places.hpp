#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/numa.hpp"
#include "executor/copy_engine/windows.hpp"
#include "executor/cpu_reducers/reducer_memory.hpp"

/// NUMA placement of the host memory through which the GPUs of a host exchange data: pages that one rank writes and
/// many read come from the writer's node.
namespace strait {

/// The NUMA nodes next to a rank's GPU and its CPU reducer threads, where they are known.
struct RankNodes {
  std::optional<std::uint32_t> gpu;
  std::optional<std::uint32_t> threads;  ///< node of the reducer threads; the GPU's if they may run on several nodes

  /// Finds the nodes of a rank. `cores`: the cores to which its reducer threads are bound; empty: they run wherever the
  /// calling thread may. `root`: of sysfs.
  static RankNodes find(const std::string& bus_id, const std::vector<std::uint32_t>& cores,
                        const std::string& root = "");
  /// Returns both nodes packed into a word, for the other ranks.
  std::uint32_t word() const;
  static RankNodes of_word(std::uint32_t word);
};

/// Places a rank's own arena, which its GPU writes.
std::vector<PlacedPart> places_of_arena(std::size_t size_bytes, const RankNodes& rank);
/// Places the chunks of each rank, which its GPU writes, in all slots.
std::vector<PlacedPart> places_of_windows(const copy_engine::StagedWindows& windows,
                                          const std::vector<RankNodes>& ranks);
/// Places the contributions of the GPUs, and the results of each lane, which one reducer thread writes. `offset`: of
/// this layout in the memory. `threads`: of each rank.
std::vector<PlacedPart> places_of_reducers(const cpu_reducers::ReducerMemory& memory, std::size_t offset,
                                           std::uint32_t threads, const std::vector<RankNodes>& ranks);

}  // namespace strait
