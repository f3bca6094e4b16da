#include "bootstrap/socket.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

namespace strait {
namespace {

/// The open sockets of this process, which a forked child closes.
class ForkGuard {
 public:
  static ForkGuard& instance() {
    static ForkGuard* guard = new ForkGuard;  // never destroyed: sockets may be closed by later static destructors
    return *guard;
  }
  void add(int fd) {
    std::lock_guard lock(mutex_);
    fds_.insert(fd);
  }
  void forget(int fd) {
    std::lock_guard lock(mutex_);
    fds_.erase(fd);
  }
  /// Closes and unregisters under the lock, so that no fork comes between: every socket that a child inherits is
  /// registered.
  void close(UniqueFd& fd) {
    std::lock_guard lock(mutex_);
    fds_.erase(fd.get());
    fd.reset();
  }

 private:
  ForkGuard() {
    ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] { instance().release_in_child(); });
  }
  /// Replaces each socket by /dev/null, so that its number stays in use: the child's copies of the owning objects may
  /// close it.
  void release_in_child() {
    int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0 &&
        !fds_.empty()) {  // No descriptor is left: close one of the sockets, whose number the new one gets.
      ::close(*fds_.begin());
      null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    }
    if (null_fd >= 0) {
      for (int fd : fds_) ::dup3(null_fd, fd, O_CLOEXEC);
      if (!fds_.contains(null_fd)) ::close(null_fd);
    }
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::set<int> fds_;
};

Result<Socket> open_socket(int family) {
  UniqueFd fd(::socket(family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno("cannot open a socket", errno, descriptor_remedy(errno));
  return Socket(std::move(fd));
}

void set_option(const Socket& socket, int level, int option, int value = 1) {
  ::setsockopt(socket.get(), level, option, &value, sizeof(value));
}

/// Sets the options of a connection. An idle connection ends about a minute after its peer's host has vanished (30 s +
/// 3 probes at intervals of 10 s). Connections within a host need no probes.
void prepare(const Socket& connection) {
  set_option(connection, IPPROTO_TCP, TCP_NODELAY);
  if (connection.stays_on_host()) return;
  set_option(connection, SOL_SOCKET, SO_KEEPALIVE);
  set_option(connection, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(connection, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(connection, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

tl::unexpected<Error> connect_failure(const SocketAddress& address, int errno_value, const IfRefused& if_refused) {
  std::string remedy = descriptor_remedy(errno_value);
  if (errno_value == ECONNREFUSED)
    remedy = if_refused.remedy;
  else if (errno_value == ENETUNREACH || errno_value == EHOSTUNREACH || errno_value == EACCES ||
           errno_value == EADDRNOTAVAIL)
    remedy =
        "Check that this host has a route to it and that no firewall blocks it; STRAIT_SOCKET_IFNAME on the rank that "
        "listens there chooses another interface";
  auto error = fail_errno("cannot connect to " + address.to_string(), errno_value, std::move(remedy));
  if (error.value().code == Code::system_error && errno_value != EMFILE && errno_value != ENFILE)
    error.value().code = errno_value == ECONNREFUSED ? if_refused.code : Code::remote_error;
  return error;
}

/// `if_refused`: the remedy where the last attempt was refused; "" where it had no answer.
tl::unexpected<Error> connect_timeout(const SocketAddress& address, std::string_view if_refused) {
  if (!if_refused.empty())
    return fail(Code::timeout,
                "nobody listened at " + address.to_string() + " by the deadline. " + std::string(if_refused));
  return fail(Code::timeout,
              "no answer from " + address.to_string() +
                  " by the deadline. A firewall may drop the packets, or the interface may not be reachable from "
                  "here: choose another one by STRAIT_SOCKET_IFNAME on the rank that listens there");
}

/// Waits until a connection attempt has ended. Returns its errno (0: connected), or nothing if the wait ended first.
std::optional<int> finish_connect(const Socket& socket, const SocketAddress& address, const Wait& wait) {
  while (!wait.aborted()) {
    pollfd fd{socket.get(), POLLOUT, 0};
    poll_slice({&fd, 1}, wait.deadline);
    if (fd.revents != 0) {
      int error = 0;
      socklen_t size = sizeof(error);
      if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
      return error;
    }
    if (wait.deadline.expired()) return std::nullopt;
    wait.remind(
        "no answer from " + address.to_string() + ". Check that no firewall drops the packets, and that this " +
        "host has a route to it; STRAIT_SOCKET_IFNAME on the rank that listens there chooses another interface");
  }
  return std::nullopt;
}

tl::unexpected<Error> listen_failure(const SocketAddress& address, int errno_value) {
  std::string remedy = "Choose an interface by STRAIT_SOCKET_IFNAME";
  if (errno_value == EADDRINUSE && address.port == 0)
    remedy = "No port is left: widen net.ipv4.ip_local_port_range, or destroy communicators";
  else if (errno_value == EADDRINUSE)
    remedy = "Another process listens there: choose another port by STRAIT_ROOT, or end it";
  if (errno_value == EADDRNOTAVAIL)
    remedy =
        "The address is not one of this host: rank 0 must run on the host that STRAIT_ROOT (or the launcher) names";
  if (errno_value == EACCES) remedy = "Ports below 1024 need privileges: choose a higher one";
  if (const std::string descriptors = descriptor_remedy(errno_value); !descriptors.empty()) remedy = descriptors;
  return fail_errno("cannot listen at " + address.to_string(), errno_value, std::move(remedy));
}

/// Opens a socket and binds it. `shares` sets SO_REUSEADDR, so that remains of earlier connections do not block the
/// port; another process may then bind it, too, until one of the two listens.
Result<Socket> bind_to(const SocketAddress& address, bool shares) {
  STRAIT_ASSIGN(Socket socket, open_socket(address.family));
  if (shares) set_option(socket, SOL_SOCKET, SO_REUSEADDR);
  if (address.family == 6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY);
  sockaddr_storage storage;
  const socklen_t size = address.to_sockaddr(storage);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0)
    return listen_failure(address, errno);
  return socket;
}

constexpr int backlog = 4096;

/// Whether the socket is connected to itself. If nobody listens at a port of this host, the kernel may choose the same
/// port as the source of a connection to it. TCP then opens that connection from both of its ends (simultaneous open,
/// RFC 9293, 3.5), and it would keep the port from the process that is to listen there. Such a connection is set to be
/// reset when it is closed, so that nothing of it remains.
bool met_itself(const Socket& socket, const SocketAddress& address) {
  const auto local = socket.local_address();
  if (!local || *local != address) return false;
  const linger at_once{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  return true;
}

}  // namespace

void poll_slice(std::span<pollfd> fds, Deadline deadline) {
  int ready = ::poll(fds.data(), fds.size(), deadline.poll_ms());
  if (ready <= 0)
    for (pollfd& fd : fds) fd.revents = 0;
}

Socket::Socket(UniqueFd fd) : fd_(std::move(fd)) {
  if (fd_) ForkGuard::instance().add(fd_.get());
}
Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::move(other.fd_);
  }
  return *this;
}
Socket::~Socket() { reset(); }
void Socket::reset() {
  if (fd_) ForkGuard::instance().close(fd_);
}
UniqueFd Socket::release() {
  if (fd_) ForkGuard::instance().forget(fd_.get());
  return std::move(fd_);
}

Result<SocketAddress> Socket::local_address() const { return address_by(::getsockname); }
Result<SocketAddress> Socket::peer_address() const { return address_by(::getpeername); }

template <class Ask>
Result<SocketAddress> Socket::address_by(Ask ask) const {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (ask(fd_.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0)
    return fail_errno("cannot read a socket's address", errno);
  return from_sockaddr(reinterpret_cast<const sockaddr*>(&storage));
}

bool Socket::stays_on_host() const {
  const auto here = local_address(), there = peer_address();
  return here && there && here->family == there->family && here->bytes == there->bytes;
}

Result<Socket> listen_at(const SocketAddress& address) {
  STRAIT_ASSIGN(Socket socket, bind_to(address, true));
  if (::listen(socket.get(), backlog) != 0) return listen_failure(address, errno);
  return socket;
}

Result<Socket> reserve_at(const SocketAddress& address) { return bind_to(address, false); }

Result<Socket> listen_on(const Socket& reserved) {
  STRAIT_ASSIGN(const SocketAddress address, reserved.local_address());
  UniqueFd own(::fcntl(reserved.get(), F_DUPFD_CLOEXEC, 0));
  if (!own || ::listen(own.get(), backlog) != 0) return listen_failure(address, errno);
  return Socket(std::move(own));
}

bool somebody_waits(const Socket& listener) {
  pollfd waiting{listener.get(), POLLIN, 0};
  return ::poll(&waiting, 1, 0) == 1;
}

Result<Socket> accept_one(const Socket& listener) {
  UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd) {
    Socket socket(std::move(fd));
    prepare(socket);
    return socket;
  }
  int error = errno;
  // accept4 allocates a descriptor before it looks for a connection: without one it fails even if none is waiting.
  bool starved = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
  if (starved && somebody_waits(listener))
    return fail_errno("cannot accept a connection", error, descriptor_remedy(error));
  return Socket();
}

Result<Socket> connect_to(const SocketAddress& address, const Wait& wait, const IfRefused& if_refused) {
  sockaddr_storage storage;
  socklen_t size = address.to_sockaddr(storage);
  std::string_view after_refusal;  // what to do if the last attempt was refused
  while (true) {
    if (wait.aborted()) return fail(Code::aborted, "aborted while connecting to " + address.to_string());
    STRAIT_ASSIGN(Socket socket, open_socket(address.family));
    int error = 0;
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0) error = errno;
    if (error == EINPROGRESS || error == EINTR) {
      auto finished = finish_connect(socket, address, wait);
      if (!finished && wait.aborted()) continue;
      if (!finished) return connect_timeout(address, after_refusal);
      error = *finished;
    }
    if (error == 0 && met_itself(socket, address)) error = ECONNREFUSED;
    if (error == ECONNRESET) error = ECONNREFUSED;  // what listened there has just ended
    if (error == 0) {
      prepare(socket);
      return socket;
    }
    if (error != ECONNREFUSED || !if_refused.retries) return connect_failure(address, error, if_refused);
    after_refusal = if_refused.remedy;
    if (wait.deadline.expired()) return connect_timeout(address, after_refusal);
    wait.remind("nobody listens at " + address.to_string() + " yet. " + std::string(if_refused.remedy));
    std::this_thread::sleep_for(std::chrono::milliseconds(wait.deadline.poll_ms(20)));
  }
}

std::string descriptor_remedy(int errno_value) {
  if (errno_value == EMFILE) return "This process has no file descriptors left: raise its limit (ulimit -n)";
  if (errno_value == ENFILE) return "This host has no file descriptors left: raise fs.file-max";
  return "";
}

}  // namespace strait
