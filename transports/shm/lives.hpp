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

/// Whether the other ranks live. Each holds a record lock on the segment's file, at the offset of its rank: the kernel
/// lets go of it when the process ends, however it ends, and when it becomes another program (exec), in which nothing
/// of the rank is left. Forked children do not inherit it. Pidfds, where there are any, know only of a process's end,
/// but also where one that shares its table of descriptors (CLONE_FILES) keeps the lock. (A process also loses its
/// locks by opening and closing the file through /proc/self/fd, which nothing does by itself.)
class Lives {
 public:
  /// Takes the segment's descriptor and the pidfds out of `met`. To be called before the ranks begin operations.
  static Result<std::unique_ptr<Lives>> watch(const RendezvousRequest& request, RendezvousResult& met);
  /// False for ranks of this process. From any thread.
  bool has_died(std::uint32_t rank) const;

 private:
  struct SegmentFile;
  static std::shared_ptr<SegmentFile> file_of(const Secret& secret, UniqueFd fd);

  std::vector<UniqueFd> pidfds_;  ///< by rank
  std::vector<bool> foreign_;     ///< by rank: of another process
  std::shared_ptr<SegmentFile> file_;
  int fd_ = -1;  ///< of the file
};

}  // namespace strait::shm
