#pragma once

#include "bootstrap/socket.hpp"
#include "bootstrap/unique_id.hpp"

namespace strait {

/// A listening unix socket at which processes of this user are handed the unique id. Anybody of this host may knock,
/// and delays nobody by it, also when this ends.
class HandOut {
 public:
  HandOut() = default;
  explicit HandOut(Socket listener) : listener_(std::move(listener)) {}
  HandOut(HandOut&&) noexcept = default;
  HandOut& operator=(HandOut&& other) noexcept;
  ~HandOut() { close(); }

  explicit operator bool() const { return static_cast<bool>(listener_); }
  int fd() const { return listener_.get(); }
  /// Hands it to those who wait, some at a time.
  void serve(const UniqueId& id);
  void close();

 private:
  Socket listener_;
};

}  // namespace strait
