#pragma once

#include "bootstrap/socket.hpp"
#include "bootstrap/unique_id.hpp"

namespace strait {

/// A listening unix socket that gives the unique id to processes of the same user. Any process of this host may
/// connect, but cannot delay this one, not even in close().
class HandOut {
 public:
  HandOut() = default;
  explicit HandOut(Socket listener) : listener_(std::move(listener)) {}
  HandOut(HandOut&&) noexcept = default;
  HandOut& operator=(HandOut&& other) noexcept;
  ~HandOut() { close(); }

  explicit operator bool() const { return static_cast<bool>(listener_); }
  int fd() const { return listener_.get(); }
  /// Gives the unique id to processes that wait, a bounded number per call.
  void serve(const UniqueId& id);
  void close();

 private:
  Socket listener_;
};

}  // namespace strait
