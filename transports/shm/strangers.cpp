#include "transports/shm/strangers.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/unix_peer.hpp"

namespace strait::shm {
namespace {

/// Checks whether there are enough free descriptors for a connection and for those that a rank sends through it.
/// Returns 0 if so, otherwise the errno.
int look_for_files(int any) {
  std::array<UniqueFd, 1 + max_fds_of_a_rank> files;
  for (UniqueFd& file : files) {
    file.reset(fcntl(any, F_DUPFD_CLOEXEC, 0));
    if (!file) return errno;
  }
  return 0;
}

}  // namespace

Strangers::~Strangers() {
  for (Stranger& stranger : pending_) close_without_blocking(std::move(stranger.fd));
}

void Strangers::watch(int listener, std::vector<pollfd>& fds) const {
  if (accept_again_.expired()) fds.push_back({listener, POLLIN, 0});
  for (const Stranger& stranger : pending_) fds.push_back({stranger.fd.get(), POLLIN, 0});
}

Status Strangers::accept_from(int listener) {
  while (accept_again_.expired()) {
    pollfd waiting{listener, POLLIN, 0};
    if (poll(&waiting, 1, 0) != 1) break;
    const int shortage = look_for_files(listener);
    if (shortage != 0 && pending_.empty())
      return fail_errno("cannot accept the ranks of this host", shortage, "Raise the limit of open files (ulimit -n)");
    if ((shortage != 0 || pending_.size() >= limits_.pending) && !make_room()) break;
    UniqueFd connection(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection) break;
    pending_.push_back({std::move(connection), Deadline::after_ms(limits_.least_ms)});
  }
  return {};
}

void Strangers::look_at_all(const std::function<Verdict(UniqueFd&)>& look) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const Verdict verdict = look(it->fd);
    if (verdict == Verdict::dropped) drop(*it);
    it = verdict == Verdict::silent ? std::next(it) : pending_.erase(it);
  }
}

/// Drops the connection that has been silent longest. Returns false, and pauses accepting, if it has not had its
/// minimum time.
bool Strangers::make_room() {
  if (!pending_.front().least.expired()) {
    accept_again_ = Deadline::after_ms(20);
    return false;
  }
  drop(pending_.front());
  pending_.pop_front();
  return true;
}

void Strangers::drop(Stranger& stranger) {
  close_without_blocking(std::move(stranger.fd));
  ++dropped_;
}

}  // namespace strait::shm
