#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.hpp"
#include "executor/copy_engine/options.hpp"
#include "executor/copy_engine/stream_driver.hpp"
#include "executor/copy_engine/windows.hpp"

namespace strait::copy_engine {

/// A collective on GPU ranks of one host. `count` is in elements, as the API counts for the collective. Buffers are
/// device memory of any alignment. If a rank's own block has the same address in both, it is not copied.
struct CopyCall {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
  std::size_t count = 0;
  const void* send = nullptr;
  void* receive = nullptr;
  std::uint32_t max_sms = 0;  ///< thread blocks that may do additions; 0: the communicator's setting
};

/// How a call that does not reduce is cut into rounds, the same on all ranks, and what one rank copies in each. In a
/// round every rank that has data fills its slot, and every rank that receives data reads those of the others. If the
/// collective's buffers have a block for each rank, a round covers a piece of every block.
class Rounds {
 public:
  static bool supports(Collective collective);
  /// The collective must be supported, with at least one element.
  Rounds(const CopyCall& call, const StagedWindows& windows, const StagedOptions& options, std::uint32_t rank);

  std::uint64_t count() const { return count_; }
  bool uploads(std::uint32_t rank) const;
  bool downloads(std::uint32_t rank) const;

  /// Append at most two copies. `window` is the shared memory's address for the device.
  void append_uploads(std::uint64_t round, std::uint32_t slot, std::byte* window, std::vector<RowCopy>& copies) const;
  void append_downloads(std::uint64_t round, std::uint32_t slot, std::byte* window, std::vector<RowCopy>& copies) const;
  /// Appends the copy of this rank's own block between its buffers, which does not leave the device.
  void append_own(std::vector<RowCopy>& copies) const;

 private:
  /// Returns whether an upload contains a different piece for each rank, or the same for all.
  bool scatters() const {
    return call_.collective == Collective::all_to_all || call_.collective == Collective::scatter;
  }
  std::size_t piece_bytes(std::uint64_t round) const;
  void append_rows_but_own(RowCopy rows, std::vector<RowCopy>& copies) const;

  CopyCall call_;
  StagedWindows windows_;
  std::uint32_t rank_;
  std::size_t block_bytes_;
  std::size_t piece_bytes_;  ///< of all rounds but the last
  std::uint64_t count_;
};

}  // namespace strait::copy_engine
