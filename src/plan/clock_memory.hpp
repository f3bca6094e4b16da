#pragma once

#include <cstdint>
#include <vector>

#include "plan/clock.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"

namespace strait {

/// Returns the share of repeatedly used data that misses a cache. Misses begin once the data exceeds the cache. With
/// three times as much data as cache, everything misses. (This fits copies as tools/doctor measures them; a strict LRU
/// cache would miss everything as soon as its size is exceeded.)
double share_beyond(double cache_bytes, double used_bytes);

/// Tracks where the bytes of a simulated operation are when a step reads or writes them: in the cache of the rank's own
/// core, in another core's, in the shared cache, or in DRAM. Returns the cost of this beyond a copy within the own
/// cache. The operation is assumed to be one of many on the same buffers, which nothing else touches in between.
class ClockMemory {
 public:
  ClockMemory(const Plan& plan, const ClockSize& size, const ClockModel& model, const Layout& layout,
              std::uint32_t slices);

  struct Cost {
    double us = 0;
    double dram_bytes = 0;  ///< measured in bytes of a copy from DRAM to DRAM
  };
  Cost read(std::uint32_t rank, const Operand& source, std::uint32_t slice, double bytes);
  Cost write(std::uint32_t rank, const Operand& destination, std::uint32_t slice, double bytes, Writes writes);

 private:
  static constexpr std::uint32_t nobody = UINT32_MAX;
  struct Cell {                      ///< one slice of one chunk of a rank's buffer
    std::uint32_t toucher = nobody;  ///< rank that touched it last in this operation
    bool written = false;
  };
  struct Use {  ///< how the whole plan reads a chunk
    std::uint32_t reader = nobody;
    bool several_readers = false;
    bool far = false;  ///< whether it is read long after it was written
    bool read_by_other_than(std::uint32_t rank) const {
      return several_readers || (reader != nobody && reader != rank);
    }
  };
  std::size_t chunk_index(std::uint32_t owner, const Operand& operand) const;
  void note_use(std::uint32_t rank, const Operand& source);
  double working_set_bytes(const RankPlan& mine) const;

  const ClockModel& model_;
  const Layout& layout_;
  std::size_t element_bytes_;
  std::size_t slice_bytes_;
  std::uint32_t slices_;
  std::uint32_t chunks_ = 1;        ///< largest number of chunks of any buffer
  double remote_share_ = 1;         ///< share of the data written by other ranks that was written on another core
  double dram_share_ = 0;           ///< share of all ranks' buffers that is in DRAM
  bool streams_ = false;            ///< whether outputs that no step reads are written with non-temporal stores
  std::vector<double> beyond_own_;  ///< by rank: share of the data it touches that its core's cache cannot hold
  std::vector<Use> uses_;           ///< by chunk
  std::vector<Cell> cells_;         ///< by chunk and slice
};

}  // namespace strait
