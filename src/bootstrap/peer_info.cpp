#include "bootstrap/peer_info.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "base/host_name.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/socket.hpp"

namespace strait {
namespace {

struct ProcessToken {
  std::mutex mutex;
  std::array<std::byte, 16> bytes{};
  pid_t owner = 0;
};

/// Returns this process's token. A forked child is another process, and gets a token of its own.
std::array<std::byte, 16> process_token() {
  static ProcessToken token;
  std::lock_guard lock(token.mutex);
  if (token.owner != ::getpid()) {
    random_bytes(token.bytes);
    token.owner = ::getpid();
  }
  return token.bytes;
}

Result<std::string> read_boot_id() {
  constexpr const char* path = "/proc/sys/kernel/random/boot_id";
  constexpr std::size_t uuid_characters = 36;
  UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  char text[uuid_characters];
  auto count = fd ? ::read(fd.get(), text, sizeof(text)) : -1;
  if (count == static_cast<ssize_t>(sizeof(text))) return std::string(text, sizeof(text));
  std::string remedy = descriptor_remedy(errno);
  if (remedy.empty())
    remedy = "Mount /proc, or set STRAIT_HOSTID to a text that is the same for all ranks of this host and no other";
  return fail_errno(std::string("cannot read this host's identity from ") + path, count < 0 ? errno : EIO, remedy);
}

}  // namespace

std::string PeerInfo::describe() const {
  return "rank " + std::to_string(rank) + " (host " + host_name + ", pid " + std::to_string(pid) + ")";
}

Result<PeerInfo> local_peer_info(int rank, const Environment& environment) {
  STRAIT_TRY(start_crypto());
  PeerInfo info;
  info.rank = rank;
  info.host_name = host_name();
  STRAIT_ASSIGN(info.host_id, environment.text("STRAIT_HOSTID"));
  if (info.host_id.size() > 200)
    return fail(Code::invalid_argument, "STRAIT_HOSTID is longer than 200 characters: give a short name");
  if (info.host_id.empty()) {
    STRAIT_ASSIGN(info.host_id, read_boot_id());
  }
  info.pid = ::getpid();
  info.process_token = process_token();
  struct stat status {};
  if (::stat("/proc/self/ns/net", &status) == 0) info.network_namespace = status.st_ino;
  info.uid = ::geteuid();
  return info;
}

}  // namespace strait
