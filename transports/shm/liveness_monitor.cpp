#include "transports/shm/liveness_monitor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

namespace strait::shm {
namespace {

/// Describes a rank's record lock: one byte at the offset of its number.
struct flock lock_of(std::uint32_t rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Result<UniqueFd> own_pidfd() {
  UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!fd && (errno == EMFILE || errno == ENFILE))
    return fail_errno("cannot open a descriptor of this process (pidfd_open)", errno,
                      "Raise the limit of open files (ulimit -n)");
  return fd;
}

/// All descriptors of one segment in this process. They are kept open together, because closing any of them drops the
/// locks of all ranks of this process.
struct LivenessMonitor::SegmentFile {
  std::vector<UniqueFd> fds;
};

std::shared_ptr<LivenessMonitor::SegmentFile> LivenessMonitor::file_of(const Secret& secret, UniqueFd fd) {
  static std::mutex mutex;
  static std::map<decltype(secret.name), std::weak_ptr<SegmentFile>> files;
  const std::lock_guard lock(mutex);
  std::erase_if(files, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = files[secret.name];
  auto file = entry.lock();
  if (!file) entry = file = std::make_shared<SegmentFile>();
  file->fds.push_back(std::move(fd));
  return file;
}

Result<std::unique_ptr<LivenessMonitor>> LivenessMonitor::watch(const RendezvousRequest& request,
                                                                RendezvousResult& met) {
  auto monitor = std::make_unique<LivenessMonitor>();
  for (const LocalRank& other : request.ranks)
    monitor->foreign_.push_back(other.process != request.ranks[request.rank].process);
  monitor->pidfds_ = std::move(met.pidfds);
  monitor->fd_ = met.segment.get();
  monitor->file_ = file_of(request.secret, std::move(met.segment));
  struct flock lock = lock_of(request.rank);
  if (fcntl(monitor->fd_, F_SETLK, &lock) != 0)
    return fail_errno("the lock by which peers notice this rank's end failed", errno,
                      "Allow fcntl(F_SETLK) in the seccomp filter, or choose STRAIT_TRANSPORT=tcp");
  return monitor;
}

bool LivenessMonitor::has_died(std::uint32_t rank) const {
  if (!foreign_[rank]) return false;
  pollfd polled{pidfds_[rank].get(), POLLIN, 0};  // poll ignores -1, the value if there is no pidfd
  if (poll(&polled, 1, 0) == 1 && (polled.revents & POLLIN) != 0) return true;
  struct flock lock = lock_of(rank);
  return fcntl(fd_, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

}  // namespace strait::shm
