#include "base/unix_peer.hpp"

#include <sys/socket.h>

#include <exception>
#include <list>
#include <mutex>
#include <thread>

namespace strait {
namespace {

/// The sockets that are still to be closed, and how many threads are closing them.
struct Leftovers {
  std::mutex mutex;
  std::list<UniqueFd> sockets;
  int threads = 0;
};
Leftovers& leftovers() {
  static auto* const all = new Leftovers;  // never destroyed: the threads may outlive main()
  return *all;
}

void close_leftovers() {
  Leftovers& all = leftovers();
  for (;;) {
    UniqueFd socket;  // declared before the lock, so that it is closed after the lock has been released
    const std::scoped_lock lock(all.mutex);
    if (all.sockets.empty()) {
      --all.threads;
      return;
    }
    socket = std::move(all.sockets.front());
    all.sockets.pop_front();
  }
}

}  // namespace

std::optional<uid_t> peer_uid(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

void close_without_blocking(UniqueFd socket) {
  if (!socket || peer_uid(socket.get()) == ::geteuid()) return;
  ::shutdown(socket.get(), SHUT_RDWR);
  constexpr int most_threads = 8;
  Leftovers& all = leftovers();
  const std::scoped_lock lock(all.mutex);
  try {
    all.sockets.push_back(std::move(socket));
    if (all.threads == most_threads) return;
    std::thread(close_leftovers).detach();
    ++all.threads;
  } catch (const std::exception&) {  // no memory, or no thread at the moment: left open, rather than block here
    (void)socket.release();
  }
}

void stop_listening(int listener) {
  ::shutdown(listener, SHUT_RDWR);
  while (UniqueFd waiting{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)})
    close_without_blocking(std::move(waiting));
}

}  // namespace strait
