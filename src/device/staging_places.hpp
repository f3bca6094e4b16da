#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/numa.hpp"
#include "executor/copy_engine/windows.hpp"
#include "executor/cpu_reducers/reducer_memory.hpp"

/// Where the pages of host memory that GPUs of a host trade through should come from: what one writes and many read,
/// from the NUMA node of its writer.
namespace strait {

/// The NUMA nodes that a rank is next to, where they are known.
struct RankNodes {
  std::optional<std::uint32_t> gpu;
  std::optional<std::uint32_t> threads;  ///< those that add up; the GPU's where they may run on several nodes

  /// `cores`: that the threads are bound to; empty: they run where the calling thread may. `root`: of sysfs.
  static RankNodes find(const std::string& bus_id, const std::vector<std::uint32_t>& cores,
                        const std::string& root = "");
  /// As one word, for the other ranks.
  std::uint32_t word() const;
  static RankNodes of_word(std::uint32_t word);
};

/// All of a rank's own memory, which its GPU writes.
std::vector<PlacedPart> places_of_arena(std::size_t size_bytes, const RankNodes& rank);
/// The ranks' chunks of all slots.
std::vector<PlacedPart> places_of_windows(const copy_engine::StagedWindows& windows,
                                          const std::vector<RankNodes>& ranks);
/// What GPUs bring, and the results of each lane, which one thread writes. `threads`: of each rank.
std::vector<PlacedPart> places_of_reducers(const cpu_reducers::ReducerMemory& memory, std::size_t offset,
                                           std::uint32_t threads, const std::vector<RankNodes>& ranks);

}  // namespace strait
