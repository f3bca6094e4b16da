#include "transports/shm/fd_message.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>

namespace strait::shm {
namespace {

tl::unexpected<Error> peer_gone() {
  return fail(Code::remote_error, "a peer on this host closed the shared memory set-up: it failed or died");
}

/// Occupies the unused ones of the descriptor numbers 0 to 2 while descriptors are received. Otherwise a received
/// descriptor could get such a number, and UniqueFd would move it to another one and close the old one. That would drop
/// the locks that other ranks of this process already hold on the segment (liveness_monitor.hpp).
class StandardNumbers {
 public:
  StandardNumbers() : lock_(mutex()) {
    for (int& fd : taken_) {
      fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (fd <= STDERR_FILENO) continue;
      ::close(std::exchange(fd, -1));
      break;
    }
  }
  ~StandardNumbers() {
    for (const int fd : taken_)
      if (fd >= 0) ::close(fd);
  }
  StandardNumbers(const StandardNumbers&) = delete;
  StandardNumbers& operator=(const StandardNumbers&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  std::lock_guard<std::mutex> lock_;
  std::array<int, STDERR_FILENO + 1> taken_{-1, -1, -1};
};

}  // namespace

Status send_message(int socket, std::span<const std::byte> body, std::span<const int> fds) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(max_fds_per_message * sizeof(int))> ancillary{};
  iovec part{const_cast<std::byte*>(body.data()), body.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = ancillary.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return peer_gone();
  if (sent >= 0) return {};
  const int why = errno;
  auto failed = fail_errno("cannot pass file descriptors to a peer on this host", why,
                           why == ETOOMANYREFS ? "Raise the limit of open files (ulimit -n)" : "");
  if (why == EAGAIN || why == ETOOMANYREFS) failed.value().code = Code::in_progress;
  return failed;
}

Result<Message> receive_message(int socket, std::size_t max_body_bytes) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(max_fds_per_message * sizeof(int))> ancillary{};
  Message result;
  result.body.resize(max_body_bytes);
  iovec part{result.body.data(), result.body.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = ancillary.size();
  ssize_t got;
  {
    const StandardNumbers kept_free_of_them;
    do got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return fail(Code::in_progress, "no message yet");
  if (got < 0 && errno == ECONNRESET) return peer_gone();
  if (got < 0) return fail_errno("cannot receive file descriptors from a peer on this host", errno);
  // Take ownership of the descriptors first, so that none leaks, whatever the message turns out to be.
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      result.fds.emplace_back(fd);
    }
  }
  result.lost_fds = (message.msg_flags & MSG_CTRUNC) != 0;
  result.body.resize(static_cast<std::size_t>(got));
  return result;
}

}  // namespace strait::shm
