#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <span>
#include <string>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/address.hpp"

namespace strait {

/// How long something may wait: until the deadline, or until the flag (if there is one) becomes true, or the question
/// (likewise), which is asked every 50 ms, is answered by yes.
struct Wait {
  Deadline deadline = Deadline::never();
  const std::atomic<bool>* abort = nullptr;
  const std::function<bool()>* is_over = nullptr;

  bool aborted() const { return (abort && abort->load(std::memory_order_acquire)) || (is_over && (*is_over)()); }
};

/// poll(2) for at most 50 ms, also shorter by the deadline; EINTR and "nothing happened" look alike to the caller.
void poll_slice(std::span<pollfd> fds, Deadline deadline);

/// A non-blocking, CLOEXEC socket that forked children lose: otherwise a data loader forked by a rank would keep the
/// connections of that rank open, and its peers would not see it die.
class Socket {
 public:
  Socket() = default;
  explicit Socket(UniqueFd fd);
  Socket(Socket&& other) noexcept = default;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset();
  /// What is no longer closed in forked children.
  UniqueFd release();
  Result<SocketAddress> local_address() const;
  /// Of a connection.
  Result<SocketAddress> peer_address() const;
  /// Whether it connects an address with itself, so that what is sent never leaves this kernel.
  bool stays_on_host() const;

 private:
  template <class Ask>
  Result<SocketAddress> address_by(Ask ask) const;
  UniqueFd fd_;
};

/// Listens at the address; port 0 takes an ephemeral one.
Result<Socket> listen_at(const SocketAddress& address);

/// Keeps a port of the address (port 0: an ephemeral one) for listen_on(). Until then connections are refused.
Result<Socket> reserve_at(const SocketAddress& address);
/// Listens at a reserved address, any number of times, one after the other. `reserved` keeps it.
Result<Socket> listen_on(const Socket& reserved);

/// Whether a connection waits to be accepted.
bool somebody_waits(const Socket& listener);

/// Accepts one connection; an empty Socket when none is waiting. Errors of a single connection count as none; running
/// out of file descriptors or memory is an error.
Result<Socket> accept_one(const Socket& listener);

/// Connects. While `retry_refused`, a refusal is tried again until the deadline, because the listener may start later.
Result<Socket> connect_to(const SocketAddress& address, const Wait& wait, bool retry_refused);

/// The remedy for EMFILE and ENFILE; "" for other errors.
std::string descriptor_remedy(int errno_value);

}  // namespace strait
