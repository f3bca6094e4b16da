#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "transports/shm/rendezvous.hpp"

namespace strait::shm {

/// Opens a pidfd of this process. Empty if the kernel does not support it or refuses it; lack of descriptors is an
/// error.
Result<UniqueFd> own_pidfd();

/// Tells whether the other ranks are alive. Each rank holds a record lock on the segment's file, at the offset of its
/// rank. The kernel releases it when the process ends, in whatever way, and when the process executes another program
/// (exec), which ends the rank, too. Forked children do not inherit it. Pidfds, if available, notice only the end of a
/// process, but also if a process that shares its descriptor table (CLONE_FILES) keeps the lock. (A process also loses
/// its locks if it opens and closes the file through /proc/self/fd, which no code does of itself.)
class LivenessMonitor {
 public:
  /// Begins to watch, and takes this rank's lock. Moves the segment's descriptor and the pidfds out of `met`. Must be
  /// called before the ranks begin operations.
  static Result<std::unique_ptr<LivenessMonitor>> watch(const RendezvousRequest& request, RendezvousResult& met);
  /// Whether a rank has died; always false for ranks of this process. May be called from any thread.
  bool has_died(std::uint32_t rank) const;

 private:
  struct SegmentFile;
  static std::shared_ptr<SegmentFile> file_of(const Secret& secret, UniqueFd fd);

  std::vector<UniqueFd> pidfds_;  ///< by rank
  std::vector<bool> foreign_;     ///< by rank: whether it is in another process
  std::shared_ptr<SegmentFile> file_;
  int fd_ = -1;  ///< a descriptor of the file, owned by `file_`
};

}  // namespace strait::shm
