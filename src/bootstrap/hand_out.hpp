#pragma once

#include <span>

#include "bootstrap/socket.hpp"

namespace strait {

/// A listening unix socket that gives the same answer, as a rule the unique id, to processes of the same user. Any
/// process of this host may connect, but cannot delay this one, not even in close().
class HandOut {
 public:
  HandOut() = default;
  explicit HandOut(Socket listener) : listener_(std::move(listener)) {}
  HandOut(HandOut&&) noexcept = default;
  HandOut& operator=(HandOut&& other) noexcept;
  ~HandOut() { close(); }

  explicit operator bool() const { return static_cast<bool>(listener_); }
  int fd() const { return listener_.get(); }
  /// Answers processes that wait, a bounded number per call. Returns how many it has answered.
  int serve(std::span<const std::byte> answer);
  void close();

 private:
  Socket listener_;
};

}  // namespace strait
