#include "transports/shm/lives.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

namespace strait::shm {
namespace {

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

/// All descriptors that this process has of one segment: closing any of them drops the locks of all its ranks.
struct Lives::SegmentFile {
  std::vector<UniqueFd> fds;
};

std::shared_ptr<Lives::SegmentFile> Lives::file_of(const Secret& secret, UniqueFd fd) {
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

Result<std::unique_ptr<Lives>> Lives::watch(const RendezvousRequest& request, RendezvousResult& met) {
  auto lives = std::make_unique<Lives>();
  bool any_locks = !met.has_own_pidfd;
  for (const LocalRank& other : request.ranks) {
    const bool foreign = other.process != request.ranks[request.rank].process;
    lives->locks_.push_back(foreign && !met.pidfds[other.rank]);
    any_locks = any_locks || lives->locks_.back();
  }
  lives->pidfds_ = std::move(met.pidfds);
  if (!any_locks) return lives;
  lives->fd_ = met.segment.get();
  lives->file_ = file_of(request.secret, std::move(met.segment));
  if (met.has_own_pidfd) return lives;
  struct flock lock = lock_of(request.rank);
  if (fcntl(lives->fd_, F_SETLK, &lock) != 0)
    return fail_errno("this system has no pidfd, and the lock by which peers would notice this rank's death failed",
                      errno, "Allow pidfd_open in the seccomp filter, or run Linux 5.3 or later");
  return lives;
}

bool Lives::has_died(std::uint32_t rank) const {
  if (locks_[rank]) {
    struct flock lock = lock_of(rank);
    return fcntl(fd_, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  }
  if (!pidfds_[rank]) return false;
  pollfd polled{pidfds_[rank].get(), POLLIN, 0};
  return poll(&polled, 1, 0) == 1 && (polled.revents & POLLIN) != 0;
}

}  // namespace strait::shm
