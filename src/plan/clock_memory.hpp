#pragma once

#include <cstdint>
#include <vector>

#include "plan/clock.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"

namespace strait {

/// Of data that is used in turn again and again, the share that a cache does not give. It starts to miss once there is
/// more than it holds; with three times as much, what is needed next has always just been pushed out. (Fits what
/// tools/doctor measures of copies; caches that forgot the oldest line first would miss all at once.)
double share_beyond(double cache_bytes, double used_bytes);

/// Where the bytes of a simulated operation lie when a step reads or writes them: in the own cache of the rank's core,
/// in another core's, in the cache that all share, or in DRAM; and what that adds to a copy within the own cache. The
/// operation is taken for one of many on the same buffers, which nobody else touches in between.
class ClockMemory {
 public:
  ClockMemory(const Plan& plan, const ClockSize& size, const ClockModel& model, const Layout& layout,
              std::uint32_t slices);

  struct Cost {
    double us = 0;
    double dram_bytes = 0;  ///< in bytes of a copy from DRAM to DRAM
  };
  Cost read(std::uint32_t rank, const Operand& source, std::uint32_t slice, double bytes);
  Cost write(std::uint32_t rank, const Operand& destination, std::uint32_t slice, double bytes, Writes writes);

 private:
  static constexpr std::uint32_t nobody = UINT32_MAX;
  struct Cell {                      ///< a slice of a chunk of a rank's buffer
    std::uint32_t toucher = nobody;  ///< who touched it last in this operation
    bool written = false;
  };
  struct Use {  ///< of a chunk in the whole plan
    std::uint32_t reader = nobody;
    bool several_readers = false;
    bool far = false;  ///< read long after it was written
    bool read_by_other_than(std::uint32_t rank) const {
      return several_readers || (reader != nobody && reader != rank);
    }
  };
  std::size_t chunk_index(std::uint32_t owner, const Operand& operand) const;
  void note_use(std::uint32_t rank, const Operand& source);
  double working_set_bytes(const RankPlan& mine) const;
  double extra_us(double bytes, double gbps) const;

  const ClockModel& model_;
  const Layout& layout_;
  std::size_t element_bytes_;
  std::size_t slice_bytes_;
  std::uint32_t slices_;
  std::uint32_t chunks_ = 1;        ///< the most of any buffer
  double remote_share_ = 1;         ///< of what other ranks wrote: the rest was written on this core
  double dram_share_ = 0;           ///< of the buffers of all ranks
  bool streams_ = false;            ///< outputs that nobody reads are written around the caches
  std::vector<double> beyond_own_;  ///< by rank: the share of what it touches that its core's cache cannot hold
  std::vector<Use> uses_;           ///< by chunk
  std::vector<Cell> cells_;         ///< by chunk and slice
};

}  // namespace strait
