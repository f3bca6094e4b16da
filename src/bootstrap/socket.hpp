#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/wait_reminder.hpp"

namespace strait {

/// How long an operation may wait: until the deadline; until the flag `abort` (may be null) becomes true; or until
/// `is_over` (may be null), which is called every 50 ms, returns true. A wait for a connection says now and then in the
/// log what it waits for, if `reminder` is set.
struct Wait {
  Deadline deadline = Deadline::never();
  const std::atomic<bool>* abort = nullptr;
  const std::function<bool()>* is_over = nullptr;
  WaitReminder* reminder = nullptr;

  bool aborted() const { return (abort && abort->load(std::memory_order_acquire)) || (is_over && (*is_over)()); }
  void remind(const std::string& what) const {
    if (reminder) reminder->remind(what);
  }
};

/// Calls poll(2) for at most 50 ms, or until the deadline if that is earlier. After EINTR all `revents` are 0, as after
/// a timeout.
void poll_slice(std::span<pollfd> fds, Deadline deadline);

/// A non-blocking, CLOEXEC socket that is closed in forked children. Otherwise a data loader forked by a rank would
/// keep the rank's connections open, and peers would not see the rank die.
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
  /// Gives up the descriptor, which is then no longer closed in forked children.
  UniqueFd release();
  Result<SocketAddress> local_address() const;
  /// Returns the address of the other end of a connection.
  Result<SocketAddress> peer_address() const;
  /// Whether both ends have the same IP address, so that the data never leaves this host's kernel.
  bool stays_on_host() const;

 private:
  template <class Ask>
  Result<SocketAddress> address_by(Ask ask) const;
  UniqueFd fd_;
};

/// Listens at the address; port 0 selects an ephemeral port.
Result<Socket> listen_at(const SocketAddress& address);

/// Binds a port of the address (port 0: an ephemeral one) for listen_on(), without listening: until then, connections
/// are refused.
Result<Socket> reserve_at(const SocketAddress& address);
/// Listens at an address reserved by reserve_at(). May be called repeatedly, once the previous listener is closed.
/// `reserved` keeps the port meanwhile.
Result<Socket> listen_on(const Socket& reserved);

/// Whether a connection waits to be accepted.
bool somebody_waits(const Socket& listener);

/// Accepts one connection; returns an empty Socket if none is waiting, or if that connection failed. Lack of file
/// descriptors or memory is an error.
Result<Socket> accept_one(const Socket& listener);

/// What connect_to() does where nobody listens at the address. What that means, and so what to do about it, only the
/// caller knows.
struct IfRefused {
  bool retries = false;  ///< tries again until the deadline, because the listener may start later
  std::string_view remedy =
      "Nothing listens there: the process that did has ended or failed (see its own error), or the address is another "
      "machine's";
  Code code = Code::remote_error;  ///< of the error, unless it tries again
};

/// Connects to the address.
Result<Socket> connect_to(const SocketAddress& address, const Wait& wait, const IfRefused& if_refused = {});

/// Returns the remedy to put into error messages for EMFILE and ENFILE; "" for other errors.
std::string descriptor_remedy(int errno_value);

}  // namespace strait
