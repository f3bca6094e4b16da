#include "transports/tcp/mesh.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/log.hpp"
#include "base/shortage.hpp"
#include "bootstrap/connect_with_key.hpp"
#include "bootstrap/doorman.hpp"

namespace strait::tcp {
namespace {

/// How long a rank tolerates a lack of descriptors, which other threads may soon release. Ranks that call it wait
/// meanwhile.
constexpr std::int64_t shortage_ms = 1000;

/// What ranks tell one another before they connect.
struct Invitation {
  SocketAddress address;
  std::uint64_t pid_namespace = 0;  ///< inode; 0: unknown
};

Bytes encode(const Invitation& invitation) {
  Serializer out;
  write_address(out, invitation.address);
  out.number(invitation.pid_namespace);
  return out.take();
}

Result<Invitation> decode(std::span<const std::byte> bytes) {
  Deserializer in(bytes);
  Invitation invitation;
  invitation.address = read_address(in);
  invitation.pid_namespace = in.number<std::uint64_t>();
  STRAIT_TRY(in.finish("data address"));
  return invitation;
}

std::uint64_t own_pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

/// Whether rank `from` calls rank `to`. With the ranks on a ring, of each pair the rank calls from which the way up to
/// the other is shorter; if both ways are equal, the lower rank.
bool calls(int from, int to, int ranks) {
  const int distance = (to - from + ranks) % ranks;
  return 2 * distance < ranks || (2 * distance == ranks && from < to);
}

/// Sets the options of a connection. An idle connection to a host that has vanished ends after 4 s. (Engine handles
/// unacknowledged data, and explains why connections within this host need no such limit.)
void prepare(const Socket& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  if (socket.stays_on_host()) return;
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

class MeshBuilder {
 public:
  MeshBuilder(Channel& channel, const Deadline& deadline)
      : channel_(channel), deadline_(deadline), mesh_(static_cast<std::size_t>(channel.ranks())) {}

  Result<std::vector<MeshPeer>> build() {
    if (channel_.ranks() == 1) return std::move(mesh_);
    STRAIT_ASSIGN(Socket listener, listen_at(channel_.address()));
    STRAIT_ASSIGN(const SocketAddress address, listener.local_address());
    STRAIT_ASSIGN(const auto table, channel_.all_gather(encode({address, own_pid_namespace()}), {deadline_, nullptr}));
    for (int caller = 0; caller < channel_.ranks(); ++caller)
      if (caller != channel_.rank() && calls(caller, channel_.rank(), channel_.ranks())) callers_.push_back(caller);
    {
      // Accepts and calls concurrently: ranks that first called and then accepted would wait for one another in a
      // circle.
      std::jthread host([&] {
        accepted_ = catch_shortage([&] { return accept_callers(std::move(listener)); });
        if (!accepted_) stop_.store(true);
      });
      called_ = call_others(table);
      if (!called_) stop_.store(true);
    }
    const Code why = accepted_ ? Code::success : accepted_.error().code;
    if (why == Code::system_error || why == Code::out_of_memory) return tl::unexpected(std::move(accepted_).error());
    STRAIT_TRY(channel_.check());  // an earlier failure on another rank is the cause of these
    STRAIT_TRY(std::move(called_));
    STRAIT_TRY(std::move(accepted_));
    STRAIT_TRY(find_processes(table));
    return std::move(mesh_);
  }

 private:
  /// Calls other ranks. Also checks the channel for errors, because this rank may have nobody to accept.
  Status call_others(const std::vector<Bytes>& table) {
    const std::function<bool()> is_over = [this] { return !channel_.check(); };
    const Wait wait{deadline_, &stop_, &is_over};
    for (int distance = 1; 2 * distance <= channel_.ranks(); ++distance) {
      const int to = (channel_.rank() + distance) % channel_.ranks();
      if (!calls(channel_.rank(), to, channel_.ranks())) continue;
      STRAIT_ASSIGN(const Invitation invitation, decode(table[static_cast<std::size_t>(to)]));
      auto connection = connect_with_key(invitation.address, channel_.key(), Purpose::data, {}, wait);
      if (!connection)
        return fail(connection.error().code, channel_.self().describe() + " cannot reach " + name(to) +
                                                 " for data: " + connection.error().message);
      connection->send(FrameType::link, strait::encode(LinkMessage{channel_.session(), channel_.rank()}));
      STRAIT_TRY(connection->flush_all(wait));
      take(to, *connection);
    }
    return {};
  }

  Status accept_callers(Socket listener) {
    Doorman doorman(std::move(listener), channel_.key(), Purpose::data, {});
    std::vector<Connection> unnamed;  // have proven the key, but not yet said which rank they are
    Deadline patience = Deadline::after_ms(shortage_ms);
    while (!callers_.empty()) {
      const bool is_short = !doorman.accept_error().empty();
      if (!is_short) patience = Deadline::after_ms(shortage_ms);
      const Status known = channel_.check();
      if (stop_.load() || !known || deadline_.expired() || patience.expired()) {
        const bool was_stopped = stop_.exchange(true);
        // Callers may already have reported that they wait for this rank: a lack of descriptors here is the reason.
        if (is_short) return cannot_accept(doorman);
        if (was_stopped) return fail(Code::aborted, "another connection failed");
        return known ? callers_missing() : known;
      }
      std::vector<pollfd> fds;
      doorman.watch(fds);
      for (const Connection& connection : unnamed) fds.push_back({connection.fd(), POLLIN, 0});
      poll_slice(fds, deadline_);
      for (Connection& connection : doorman.admit()) unnamed.push_back(std::move(connection));
      std::erase_if(unnamed, [&](Connection& connection) { return take_caller(connection); });
    }
    return {};
  }

  /// Handles a connection's link frame. Returns true if the connection is done with: taken as a rank's, or to be
  /// dropped.
  bool take_caller(Connection& connection) {
    connection.fill();
    auto frame = connection.next();
    if (frame && !*frame) return connection.ended();
    if (!frame || (*frame)->type != FrameType::link) return true;
    const auto message = decode_link((*frame)->payload);
    if (!message || message->session != channel_.session() || std::erase(callers_, message->rank) == 0) return true;
    take(message->rank, connection);
    return true;
  }

  /// Called by both threads, for different ranks.
  void take(int rank, Connection& connection) {
    MeshPeer& peer = mesh_[static_cast<std::size_t>(rank)];
    peer.socket = connection.release(peer.unread);
    prepare(peer.socket);
  }

  Status cannot_accept(const Doorman& doorman) const {
    return fail(Code::system_error, channel_.self().describe() + " cannot let in " + name(callers_.front()) +
                                        " for data: " + doorman.accept_error());
  }
  Status callers_missing() const {
    return fail(Code::timeout, name(callers_.front()) + " did not connect to " + channel_.self().describe() +
                                   " for data by the deadline. A firewall may block connections between their hosts; "
                                   "STRAIT_SOCKET_IFNAME chooses the interface");
  }

  /// Opens pidfds of peers on this host, by which the end of a process is noticed even if a child of it keeps its
  /// sockets open.
  Status find_processes(const std::vector<Bytes>& table) {
    const std::uint64_t own = own_pid_namespace();
    for (const PeerInfo& peer : channel_.peers()) {
      STRAIT_ASSIGN(const Invitation invitation, decode(table[static_cast<std::size_t>(peer.rank)]));
      if (!peer.same_host(channel_.self()) || peer.same_process(channel_.self())) continue;
      if (own == 0 || invitation.pid_namespace != own) continue;
      const auto pid = static_cast<pid_t>(peer.pid);
      UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
      if (!pidfd && (errno == EMFILE || errno == ENFILE))
        return fail_errno("cannot open a descriptor of " + name(peer.rank) + " (pidfd_open)", errno,
                          descriptor_remedy(errno));
      mesh_[static_cast<std::size_t>(peer.rank)].pidfd = std::move(pidfd);
    }
    return {};
  }

  std::string name(int rank) const { return channel_.peers()[static_cast<std::size_t>(rank)].describe(); }

  Channel& channel_;
  const Deadline& deadline_;
  std::vector<MeshPeer> mesh_;
  std::vector<int> callers_;  ///< ranks that have not called yet
  std::atomic<bool> stop_{false};
  Status called_;
  Status accepted_;
};

}  // namespace

Result<std::vector<MeshPeer>> open_mesh(Channel& channel, const Deadline& deadline) {
  return MeshBuilder(channel, deadline).build();
}

}  // namespace strait::tcp
