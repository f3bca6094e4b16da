#include "transports/shm/rendezvous.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/unix_peer.hpp"
#include "transports/shm/fd_message.hpp"
#include "transports/shm/liveness_monitor.hpp"
#include "transports/shm/shared_heap.hpp"
#include "transports/shm/strangers.hpp"

namespace strait::shm {
namespace {

/// What a rank tells of itself when it connects, and a row of the table that it gets back. The descriptors that the
/// flags announce come with the message, in the order of the flags.
struct Introduction {
  std::uint32_t rank = 0;
  std::uint8_t has_pidfd = 0;
  std::uint8_t has_heap = 0;
  std::uint8_t has_failed = 0;  ///< the rank cannot go on, and reports its error by itself
  std::uint8_t reserved = 0;
};
/// The first message in each direction.
struct Hello {
  std::array<std::byte, 32> password;
  Introduction self;
};
struct Row {
  std::uint32_t rank;
  UniqueFd pidfd;
  UniqueFd heap;
};
/// How long a rank tries to send descriptors. That takes so long only where the user's other processes have too many in
/// flight; then the ranks had better do without this transport.
constexpr std::int64_t sending_ms = 10'000;
constexpr std::size_t rows_per_message = max_fds_per_message / max_fds_of_a_rank;
constexpr std::size_t max_body_bytes = sizeof(Hello) + rows_per_message * sizeof(Introduction);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// An address at which the leader listens. Abstract names vanish with their socket, but do not reach other network
/// namespaces. Ranks in another one connect through a socket file, which is removed as soon as all have connected.
struct Address {
  sockaddr_un value{};
  socklen_t size = 0;
};
Address abstract_address(const Secret& secret) {
  const std::string name = public_name(secret);
  Address address;
  address.value.sun_family = AF_UNIX;
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}
Address file_address(const Secret& secret) {
  const std::string path = "/tmp/" + public_name(secret);
  Address address;
  address.value.sun_family = AF_UNIX;
  std::memcpy(address.value.sun_path, path.c_str(), path.size() + 1);
  address.size = sizeof(sockaddr_un);
  return address;
}
const sockaddr* generic(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.value); }

class Listener {
 public:
  static Result<Listener> open(const Address& address) {
    UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return fail_errno("cannot open a unix socket", errno, "Raise the limit of open files (ulimit -n)");
    // A socket file must be accessible to this user only. The mode is set on the socket, because a umask would affect
    // all threads.
    if (fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0 || bind(fd.get(), generic(address), address.size) != 0)
      return fail_errno("cannot bind a unix socket", errno, "Check that /tmp is writable");
    Listener listener(std::move(fd), address);
    if (listen(listener.fd_.get(), 512) != 0) return fail_errno("cannot listen on a unix socket", errno);
    return listener;
  }
  Listener(Listener&& other) noexcept : fd_(std::move(other.fd_)), path_(std::exchange(other.path_, std::string())) {}
  ~Listener() {
    if (fd_) stop_listening(fd_.get());
    if (!path_.empty()) unlink(path_.c_str());
  }
  int fd() const { return fd_.get(); }

 private:
  Listener(UniqueFd fd, const Address& address) : fd_(std::move(fd)), path_(address.value.sun_path) {}
  UniqueFd fd_;
  std::string path_;  ///< empty for an abstract name
};

/// Ranks may stall at any moment of the set-up, so only the deadline limits how long others wait for them.
Status check_wait(const RendezvousRequest& request, const std::string& waiting_for) {
  if (request.check) STRAIT_TRY(request.check());
  if (request.deadline.expired())
    return fail(Code::timeout, "shared memory set-up: no answer from " + waiting_for + " within the deadline");
  return {};
}

bool same_process(const RendezvousRequest& request, std::uint32_t a, std::uint32_t b) {
  return request.ranks[a].process == request.ranks[b].process;
}

/// Sends a message; waits while the peer, or other receivers of this user's descriptors, must receive messages first.
Status send_in_time(const RendezvousRequest& request, int socket, std::span<const std::byte> body,
                    std::span<const int> fds) {
  const Deadline deadline = earlier(request.deadline, Deadline::after_ms(sending_ms));
  for (;;) {
    Status sent = send_message(socket, body, fds);
    if (sent || sent.error().code != Code::in_progress) return sent;
    if (request.check) STRAIT_TRY(request.check());
    if (deadline.expired()) return fail(Code::system_error, sent.error().message);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

tl::unexpected<Error> lost_descriptors(const std::string& sender) {
  return fail(Code::system_error, "there is no room for the file descriptors that " + sender +
                                      " passed on. Raise the limit of open files (ulimit -n)");
}

/// Moves a row's descriptors to their places in the result.
void keep(RendezvousResult& result, Row row) {
  result.pidfds[row.rank] = std::move(row.pidfd);
  result.heaps[row.rank] = std::move(row.heap);
}

class Leader {
 public:
  explicit Leader(const RendezvousRequest& request) : request_(request), clients_(request.ranks.size()) {}

  Result<RendezvousResult> run() {
    RendezvousResult result;
    result.pidfds.resize(clients_.size());
    result.heaps.resize(clients_.size());
    STRAIT_TRY(request_.agree(prepare(result)));
    STRAIT_TRY(request_.agree({}));  // waits until the others have connected
    UniqueFd heap(request_.heap_fd >= 0 ? fcntl(request_.heap_fd, F_DUPFD_CLOEXEC, 0) : -1);
    if (request_.heap_fd >= 0 && !heap)
      return fail_errno("cannot keep a descriptor for the ranks of this host", errno,
                        "Raise the limit of open files (ulimit -n)");
    STRAIT_ASSIGN(UniqueFd pidfd, own_pidfd());
    rows_.push_back({request_.rank, std::move(pidfd), std::move(heap)});
    while (present_ + 1 < clients_.size()) {
      STRAIT_TRY(check_wait(request_, missing() + dropped()));
      STRAIT_TRY(accept_and_hear());
    }
    for (std::uint32_t rank = 0; rank < clients_.size(); ++rank)
      if (clients_[rank]) STRAIT_TRY(answer(rank, result.segment.get()));
    for (Row& row : rows_)
      if (!same_process(request_, row.rank, request_.rank)) keep(result, std::move(row));
    result.strangers_dropped = strangers_.dropped();
    return result;
  }

 private:
  Status prepare(RendezvousResult& result) {
    STRAIT_ASSIGN(result.segment, make_sealed_memory("strait-segment", request_.segment_bytes));
    return listen();
  }

  Status listen() {
    STRAIT_ASSIGN(Listener abstract, Listener::open(abstract_address(request_.secret)));
    listeners_.push_back(std::move(abstract));
    const auto elsewhere = std::any_of(request_.ranks.begin(), request_.ranks.end(), [&](const LocalRank& local) {
      return local.net_namespace != request_.ranks[request_.rank].net_namespace;
    });
    if (!elsewhere) return {};
    STRAIT_ASSIGN(Listener file, Listener::open(file_address(request_.secret)));
    listeners_.push_back(std::move(file));
    return {};
  }

  Status accept_and_hear() {
    std::vector<pollfd> polled;
    for (const Listener& listener : listeners_) strangers_.watch(listener.fd(), polled);
    if (poll(polled.data(), polled.size(), request_.deadline.poll_ms()) < 0 && errno != EINTR)
      return fail_errno("cannot wait for the ranks of this host", errno);
    for (const Listener& listener : listeners_) STRAIT_TRY(strangers_.accept_from(listener.fd()));
    strangers_.look_at_all([this](UniqueFd& connection) { return hear(connection); });
    return failed_;
  }

  /// Handles a connection's first message. If it contains the password, the connection becomes a client. Otherwise the
  /// connection is dropped, and no descriptors are received from it, because they would have to be closed here.
  Strangers::Verdict hear(UniqueFd& connection) {
    Hello hello;
    const ssize_t seen = recv(connection.get(), &hello, sizeof hello, MSG_PEEK | MSG_DONTWAIT);
    if (seen < 0 && (errno == EAGAIN || errno == EINTR)) return Strangers::Verdict::silent;
    const bool known = seen == sizeof hello && equal_in_constant_time(hello.password, request_.secret.password) &&
                       hello.self.rank < clients_.size() && hello.self.rank != request_.rank &&
                       !clients_[hello.self.rank];
    if (!known) return Strangers::Verdict::dropped;
    auto message = receive_message(connection.get(), sizeof hello);
    if (message && message->lost_fds) {
      failed_ = lost_descriptors("rank " + std::to_string(hello.self.rank));
      return Strangers::Verdict::dropped;
    }
    if (!message || message->fds.size() != std::size_t{hello.self.has_pidfd} + hello.self.has_heap)
      return Strangers::Verdict::dropped;
    if (hello.self.has_failed != 0) {
      failed_ = fail(Code::remote_error, "rank " + std::to_string(hello.self.rank) + " failed during the set-up");
      return Strangers::Verdict::dropped;
    }
    Row row{hello.self.rank, {}, {}};
    std::size_t next = 0;
    if (hello.self.has_pidfd != 0) row.pidfd = std::move(message->fds[next++]);
    if (hello.self.has_heap != 0) row.heap = std::move(message->fds[next]);
    rows_.push_back(std::move(row));
    clients_[hello.self.rank] = std::move(connection);
    ++present_;
    return Strangers::Verdict::taken;
  }

  Status answer(std::uint32_t rank, int segment) const {
    Hello welcome{request_.secret.password, {}};
    welcome.self.rank = request_.rank;
    STRAIT_TRY(send_in_time(request_, clients_[rank].get(), bytes_of(welcome), std::span(&segment, 1)));
    for (std::size_t begin = 0; begin < rows_.size(); begin += rows_per_message) {
      std::vector<Introduction> table;
      std::vector<int> fds;
      for (std::size_t i = begin; i < std::min(rows_.size(), begin + rows_per_message); ++i) {
        const Row& row = rows_[i];
        const bool foreign = !same_process(request_, row.rank, rank);  // ranks of the same process need no descriptors
        Introduction line{row.rank, foreign && row.pidfd, foreign && row.heap};
        if (line.has_pidfd != 0) fds.push_back(row.pidfd.get());
        if (line.has_heap != 0) fds.push_back(row.heap.get());
        table.push_back(line);
      }
      STRAIT_TRY(send_in_time(request_, clients_[rank].get(), std::as_bytes(std::span(table)), fds));
    }
    return {};
  }

  std::string missing() const {
    std::string text;
    for (std::uint32_t rank = 0; rank < clients_.size(); ++rank)
      if (rank != request_.rank && !clients_[rank]) text += (text.empty() ? "rank " : ", ") + std::to_string(rank);
    return text;
  }

  std::string dropped() const {
    return strangers_.dropped() == 0
               ? ""
               : " (" + std::to_string(strangers_.dropped()) + " strangers at the unix socket were dropped)";
  }

  const RendezvousRequest& request_;
  std::vector<Listener> listeners_;
  Strangers strangers_{Strangers::Limits{}};
  Status failed_;  ///< the error of a rank that reported a failure
  std::vector<UniqueFd> clients_;
  std::vector<Row> rows_;
  std::size_t present_ = 0;
};

class Follower {
 public:
  explicit Follower(const RendezvousRequest& request) : request_(request) {}

  Result<RendezvousResult> run() {
    STRAIT_TRY(request_.agree({}));  // waits until the leader listens
    STRAIT_TRY(request_.agree(connect()));
    RendezvousResult result;
    STRAIT_TRY(introduce());
    result.pidfds.resize(request_.ranks.size());
    result.heaps.resize(request_.ranks.size());
    STRAIT_ASSIGN(Message welcome, next_message());
    Hello leader;
    if (welcome.body.size() != sizeof leader || welcome.fds.size() != 1) return unexpected_answer();
    std::memcpy(&leader, welcome.body.data(), sizeof leader);
    if (!equal_in_constant_time(leader.password, request_.secret.password)) return unexpected_answer();
    result.segment = std::move(welcome.fds.front());
    for (std::size_t rows = 0; rows < request_.ranks.size();) {
      STRAIT_ASSIGN(Message message, next_message());
      STRAIT_TRY(take_rows(message, rows, result));
    }
    return result;
  }

 private:
  Status connect() {
    const bool same_namespace = request_.ranks[0].net_namespace == request_.ranks[request_.rank].net_namespace;
    const Address address = same_namespace ? abstract_address(request_.secret) : file_address(request_.secret);
    for (;;) {
      socket_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!socket_) return fail_errno("cannot open a unix socket", errno, "Raise the limit of open files (ulimit -n)");
      if (::connect(socket_.get(), generic(address), address.size) == 0) return {};
      if (errno != EAGAIN && errno != EINTR)
        return fail_errno("cannot reach rank 0 of this host through a unix socket", errno,
                          same_namespace ? ""
                                         : "It is in another network namespace: with the same /tmp, the ranks could "
                                           "meet there");
      STRAIT_TRY(check_wait(request_, "rank 0 of this host"));  // too many ranks connect at once
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Status introduce() const {
    const auto pidfd = own_pidfd();
    Hello hello{request_.secret.password, {}};
    hello.self.rank = request_.rank;
    hello.self.has_failed = pidfd ? 0 : 1;
    std::vector<int> fds;
    if (pidfd && *pidfd) {
      hello.self.has_pidfd = 1;
      fds.push_back(pidfd->get());
    }
    if (pidfd && request_.heap_fd >= 0) {
      hello.self.has_heap = 1;
      fds.push_back(request_.heap_fd);
    }
    Status sent = send_in_time(request_, socket_.get(), bytes_of(hello), fds);
    if (sent) return pidfd.map([](const UniqueFd&) {});
    hello.self = {request_.rank, 0, 0, 1};  // else the leader would wait for this rank
    (void)send_message(socket_.get(), bytes_of(hello), {});
    return sent;
  }

  Result<Message> next_message() const {
    for (;;) {
      auto message = receive_message(socket_.get(), max_body_bytes);
      if (message && message->body.empty())
        return fail(Code::remote_error, "rank 0 of this host closed the shared memory set-up: it failed or died");
      if (message && message->lost_fds) return lost_descriptors("rank 0 of this host");
      if (message || message.error().code != Code::in_progress) return message;
      STRAIT_TRY(check_wait(request_, "rank 0 of this host, which waits for all ranks,"));
      pollfd polled{socket_.get(), POLLIN, 0};
      poll(&polled, 1, request_.deadline.poll_ms());
    }
  }

  Status take_rows(Message& message, std::size_t& rows, RendezvousResult& result) const {
    const std::size_t count = message.body.size() / sizeof(Introduction);
    std::vector<Introduction> table(count);
    std::memcpy(table.data(), message.body.data(), count * sizeof(Introduction));
    std::size_t next = 0;
    for (const Introduction& line : table) {
      if (line.rank >= result.pidfds.size()) return unexpected_answer();
      if (next + line.has_pidfd + line.has_heap > message.fds.size()) return unexpected_answer();
      Row row{line.rank, {}, {}};
      if (line.has_pidfd != 0) row.pidfd = std::move(message.fds[next++]);
      if (line.has_heap != 0) row.heap = std::move(message.fds[next++]);
      keep(result, std::move(row));
    }
    rows += std::max<std::size_t>(count, 1);
    return {};
  }

  static tl::unexpected<Error> unexpected_answer() {
    return fail(Code::remote_error, "the shared memory set-up got an answer that no Strait of this version gives");
  }

  const RendezvousRequest& request_;
  UniqueFd socket_;
};

}  // namespace

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  std::byte difference{0};  // no early exit: the time must not reveal how much of a guess is right
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

std::string public_name(const Secret& secret) {
  std::string text = "strait-";
  for (std::byte b : secret.name) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(b));
    text += digits;
  }
  return text;
}

Result<RendezvousResult> meet(const RendezvousRequest& request) {
  if (request.rank == 0) return Leader(request).run();
  auto result = Follower(request).run();
  // In case the leader was killed and could not remove it.
  if (!result) unlink(file_address(request.secret).value.sun_path);
  return result;
}

}  // namespace strait::shm
