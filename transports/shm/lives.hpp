#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "transports/shm/rendezvous.hpp"

namespace strait::shm {

/// Of this process. Empty where the kernel has none or refuses it. Without descriptors left it is an error.
Result<UniqueFd> own_pidfd();

/// Whether the processes of the other ranks live. Their pidfds tell, where they have one. A process without (Linux
/// older than 5.3, or a seccomp filter) holds a record lock on the segment's file instead, at the offset of its rank:
/// the kernel lets go of it when the process ends, however it ends, and forked children do not inherit it. The lock is
/// only the second choice because a process also loses it by opening and closing the file through /proc/self/fd.
class Lives {
 public:
  /// Takes the segment's descriptor and the pidfds out of `met`. To be called before the ranks begin operations.
  static Result<std::unique_ptr<Lives>> watch(const RendezvousRequest& request, RendezvousResult& met);
  /// False for ranks of this process. From any thread.
  bool has_died(std::uint32_t rank) const;

 private:
  struct SegmentFile;
  static std::shared_ptr<SegmentFile> file_of(const Secret& secret, UniqueFd fd);

  std::vector<UniqueFd> pidfds_;       ///< by rank
  std::vector<bool> locks_;            ///< by rank: lives as long as it holds its lock
  std::shared_ptr<SegmentFile> file_;  ///< where any rank goes by locks
  int fd_ = -1;                        ///< of the file
};

}  // namespace strait::shm
