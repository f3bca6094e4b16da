#include "bootstrap/local_meeting.hpp"

#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>

#include "base/unix_peer.hpp"

namespace strait {
namespace {

struct LocalName {
  sockaddr_un address{};
  socklen_t size = 0;
  std::string text;
};

/// Returns the socket's name. The user is part of it, so that another user's job of the same name does not interfere.
LocalName name_of(const std::string& job) {
  constexpr char digits[] = "0123456789abcdef";
  LocalName name;
  name.text = "strait-" + std::to_string(::geteuid()) + "-";
  Key hash = derive_key({}, "Strait local meeting: " + job);
  for (std::size_t i = 0; i < 16; ++i) {
    auto byte = std::to_integer<unsigned>(hash[i]);
    name.text += {digits[byte >> 4], digits[byte & 15]};
  }
  name.address.sun_family = AF_UNIX;
  // A leading 0 byte: the abstract namespace.
  std::memcpy(name.address.sun_path + 1, name.text.data(), name.text.size());
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.text.size());
  return name;
}

Result<Socket> open_unix_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno("cannot open a unix socket", errno, descriptor_remedy(errno));
  // SO_PASSRIGHTS (since Linux 6.16): refuses descriptors, which nobody is to send here. Older kernels accept them all
  // the same.
  constexpr int pass_rights = 83, none = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, pass_rights, &none, sizeof(none));
  return Socket(std::move(fd));
}

Status pause(const std::string& what, const Wait& wait) {
  if (wait.aborted()) return fail(Code::aborted, "aborted while " + what);
  if (wait.deadline.expired()) return fail(Code::timeout, "gave up by the deadline, " + what);
  wait.remind(what);
  std::this_thread::sleep_for(std::chrono::milliseconds(wait.deadline.poll_ms(10)));
  return {};
}

/// Reads what rank 0 sends until it closes.
Result<Bytes> read_answer(const Socket& socket, const Wait& wait) {
  constexpr std::size_t most_bytes = 65536;
  Bytes answer;
  while (answer.size() < most_bytes) {
    STRAIT_TRY(wait.aborted() || wait.deadline.expired() ? pause("asking rank 0 for the unique id", wait) : Status{});
    pollfd fd{socket.get(), POLLIN, 0};
    poll_slice({&fd, 1}, wait.deadline);
    std::array<std::byte, 4096> chunk;
    auto count = ::recv(socket.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (count > 0) answer.insert(answer.end(), chunk.begin(), chunk.begin() + count);
    bool gone = count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    if (gone) break;
  }
  return answer;
}

/// Reads the unique id. Returns nothing if the other end closes first: rank 0 may just be ending an earlier start-up.
Result<std::optional<UniqueId>> read_id(const Socket& socket, const Wait& wait) {
  STRAIT_ASSIGN(const Bytes answer, read_answer(socket, wait));
  if (answer.empty()) return std::nullopt;
  STRAIT_ASSIGN(UniqueId id, unpack_id_or_refusal(answer));
  return id;
}

/// Checks that the other end of the connection belongs to this user; otherwise closes it and fails.
Status check_owner(Socket& socket, const LocalName& name) {
  const auto user = peer_uid(socket.get());
  if (user == ::geteuid()) return {};
  close_without_blocking(socket.release());
  return fail(Code::remote_error, "the unix socket @" + name.text + " belongs to another user (uid " +
                                      (user ? std::to_string(*user) : "unknown") +
                                      "): set STRAIT_ROOT and STRAIT_KEY instead");
}

bool connects(const Socket& socket, const LocalName& name) {
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name.address), name.size) == 0;
}

}  // namespace

Result<Socket> listen_for_local_ranks(const std::string& job, const Wait& wait) {
  LocalName name = name_of(job);
  while (true) {
    end_failed_root(job);
    STRAIT_ASSIGN(Socket socket, open_unix_socket());
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name.address), name.size) == 0) {
      if (::listen(socket.get(), 4096) == 0) return socket;
      return fail_errno("cannot listen at the unix socket @" + name.text, errno);
    }
    if (errno != EADDRINUSE) return fail_errno("cannot bind the unix socket @" + name.text, errno);
    STRAIT_ASSIGN(Socket caller, open_unix_socket());
    if (connects(caller, name)) STRAIT_TRY(check_owner(caller, name));
    STRAIT_TRY(
        pause("waiting for another rank 0 of this job, which holds the unix socket @" + name.text +
                  ". Two programs with one job name cannot start at the same time on one host: set STRAIT_ROOT and "
                  "STRAIT_KEY for one of them",
              wait));
  }
}

void refuse_local_ranks(const std::string& job, int others, const Error& why, const Wait& wait) {
  auto door = listen_for_local_ranks(job, wait);
  if (!door) return;
  HandOut hand_out(std::move(*door));
  const Bytes answer = pack_refusal(why);
  for (int told = 0; told < others && !wait.aborted() && !wait.deadline.expired();) {
    pollfd fd{hand_out.fd(), POLLIN, 0};
    poll_slice({&fd, 1}, wait.deadline);
    told += hand_out.serve(answer);
  }
}

Result<UniqueId> ask_local_root(const std::string& job, const Wait& wait) {
  LocalName name = name_of(job);
  while (true) {
    STRAIT_ASSIGN(Socket socket, open_unix_socket());
    if (connects(socket, name)) {
      STRAIT_TRY(check_owner(socket, name));
      STRAIT_ASSIGN(auto id, read_id(socket, wait));
      if (id) return *id;
    } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      return fail_errno("cannot connect to the unix socket @" + name.text, errno);
    }
    STRAIT_TRY(pause("waiting for rank 0 at the unix socket @" + name.text +
                         ". Check that rank 0 runs; where ranks have network namespaces of their own (containers), set "
                         "STRAIT_ROOT and STRAIT_KEY",
                     wait));
  }
}

}  // namespace strait
