#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

namespace strait::testing {

/// A forked process that runs as user `nobody` and uses unix sockets in the abstract namespace, on request of this one.
/// It exists only if this process is root; otherwise the object converts to false. The destructor kills it.
class AnotherUser {
 public:
  AnotherUser() {
    if (::geteuid() != 0 || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_.data()) != 0) return;
    child_ = ::fork();
    if (child_ == 0) serve(ends_[1]);
  }
  ~AnotherUser() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    for (const int end : ends_) ::close(end);
  }
  AnotherUser(const AnotherUser&) = delete;
  AnotherUser& operator=(const AnotherUser&) = delete;

  explicit operator bool() const { return child_ > 0; }
  /// Makes the other user listen at the abstract socket address `name`; returns whether that worked.
  bool listens_at(const std::string& name) const { return asks({'L', SOCK_STREAM, name}); }
  /// Makes the other user connect to the abstract socket address `name`, where this process is about to listen, and
  /// send a descriptor whose last close() blocks for half a minute. Returns whether that worked.
  bool sends_to(const std::string& name, int type) const { return asks({'S', type, name}); }

 private:
  struct Wish {
    Wish() = default;
    Wish(char what_, int type_, const std::string& name_) : what(what_), type(type_) {
      size = name_.copy(name.data(), name.size());
    }
    char what = 0;
    int type = 0;
    std::size_t size = 0;
    std::array<char, 100> name{};
  };
  bool asks(const Wish& wish) const {
    bool done = false;
    return ::send(ends_[0], &wish, sizeof wish, 0) == sizeof wish && ::recv(ends_[0], &done, sizeof done, 0) == 1 &&
           done;
  }

  /// Runs in the forked child, which may make only system calls: threads of the parent may have held locks at the fork.
  [[noreturn]] static void serve(int end) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    constexpr uid_t nobody = 65534;
    Wish wish;
    bool done = ::setresuid(nobody, nobody, nobody) == 0;
    while (::recv(end, &wish, sizeof wish, 0) == sizeof wish) {
      done = done && (wish.what == 'L' ? listen_at(wish) : send_and_go(wish));
      ::send(end, &done, sizeof done, 0);
    }
    ::_exit(0);
  }

  static socklen_t address_of(const Wish& wish, sockaddr_un& address) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, wish.name.data(), wish.size);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + wish.size);
  }
  static bool listen_at(const Wish& wish) {
    sockaddr_un address{};
    const socklen_t size = address_of(wish, address);
    const int listener = ::socket(AF_UNIX, wish.type, 0);
    return ::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) == 0 && ::listen(listener, 8) == 0;
  }
  /// Sends the descriptor from a further child that exits, so that the receiver holds the last reference to it.
  static bool send_and_go(const Wish& wish) {
    const sockaddr_in never_accepts = listen_anywhere();
    const pid_t sender = ::fork();
    if (sender == 0) ::_exit(send_to(wish, never_accepts) ? 0 : 1);
    int status = -1;
    return ::waitpid(sender, &status, 0) == sender && status == 0;
  }
  static bool send_to(const Wish& wish, const sockaddr_in& never_accepts) {
    sockaddr_un address{};
    const socklen_t size = address_of(wish, address);
    const int door = ::socket(AF_UNIX, wish.type, 0);
    if (::connect(door, reinterpret_cast<const sockaddr*>(&address), size) != 0) return false;
    const int slow = slow_to_close(never_accepts);
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof slow)> ancillary{};
    char byte = 0;
    iovec part{&byte, 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = ancillary.data();
    message.msg_controllen = ancillary.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof slow);
    std::memcpy(CMSG_DATA(header), &slow, sizeof slow);
    return ::sendmsg(door, &message, MSG_NOSIGNAL) == 1;
  }
  static sockaddr_in listen_anywhere() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    ::bind(listener, reinterpret_cast<const sockaddr*>(&address), size);
    ::listen(listener, 1);
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    return address;
  }
  /// Returns a connected socket whose close() blocks: its peer never reads what is in its send buffer, and SO_LINGER is
  /// half a minute.
  static int slow_to_close(const sockaddr_in& never_accepts) {
    const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
    ::connect(connection, reinterpret_cast<const sockaddr*>(&never_accepts), sizeof never_accepts);
    static std::array<char, 65536> much;
    while (::send(connection, much.data(), much.size(), MSG_DONTWAIT) > 0) {
    }
    const linger half_a_minute{1, 30};
    ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &half_a_minute, sizeof half_a_minute);
    return connection;
  }

  std::array<int, 2> ends_{-1, -1};
  pid_t child_ = -1;
};

}  // namespace strait::testing
