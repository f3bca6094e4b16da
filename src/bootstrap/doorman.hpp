#pragma once

#include <list>
#include <vector>

#include "bootstrap/connection.hpp"
#include "bootstrap/handshake.hpp"

namespace strait {

/// Stands at a listening socket: accepts, and lets in who proves the key. Everybody else is dropped: who sends
/// something else at once, who says nothing by the handshake's deadline. Many at a time and never waiting, so that
/// strangers delay nobody.
class Doorman {
 public:
  struct Limits {
    std::int64_t handshake_ms = 2000;
    std::size_t pending = 512;  ///< handshakes at a time; beyond, strangers are dropped
    std::size_t accepts = 64;   ///< at a time: strangers may knock faster than they can be looked at
  };

  Doorman(Socket listener, const Key& key, Purpose purpose, Limits limits);

  /// Appends what to poll for.
  void watch(std::vector<pollfd>& fds) const;
  /// Does what can be done now; returns those who have just proven the key. Call it after each poll, whatever was
  /// ready.
  std::vector<Connection> admit();
  /// Parts from all who have not been admitted yet; ranks knock again.
  void drop_all() { pending_.clear(); }
  /// Admits nobody from now on.
  void close();
  /// How many were dropped, and what was wrong with the last one.
  std::int64_t dropped() const { return dropped_; }
  const std::string& last_drop() const { return last_drop_; }
  /// Set while accepting fails for want of file descriptors or memory.
  const std::string& accept_error() const { return accept_error_; }

 private:
  struct Pending {
    Connection connection;
    ServerHandshake handshake;
    Deadline deadline;
    Deadline patience;  ///< beyond it, this one makes room where it is needed
    bool was_silent = false;
  };
  using PendingList = std::list<Pending>;
  void accept_some();
  PendingList::iterator oldest_silent();
  bool make_room(PendingList::iterator stranger, const std::string& reason);
  Status advance(Pending& pending) const;
  void count_drop(const std::string& peer, const std::string& reason);

  Socket listener_;
  Key key_;
  Purpose purpose_;
  Limits limits_;
  PendingList pending_;
  std::int64_t dropped_ = 0;
  std::string last_drop_;
  std::string accept_error_;
  Deadline accept_again_ = Deadline::after_ms(0);
};

}  // namespace strait
