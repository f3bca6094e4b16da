#pragma once

#include <list>
#include <vector>

#include "bootstrap/connection.hpp"
#include "bootstrap/handshake.hpp"

namespace strait {

/// Accepts connections at a listening socket, and admits peers that prove the key. All others are dropped: those that
/// send anything else immediately, those that send nothing when the handshake's deadline passes. It handles many
/// handshakes concurrently and never waits, so that strangers delay nobody.
class Doorman {
 public:
  struct Limits {
    std::int64_t handshake_ms = 2000;
    std::size_t pending = 512;  ///< concurrent handshakes; beyond that, strangers are dropped
    std::size_t accepts = 64;   ///< accepted per admit(): strangers may connect faster than they can be examined
  };

  Doorman(Socket listener, const Key& key, Purpose purpose, Limits limits);

  /// Appends the descriptors to poll.
  void watch(std::vector<pollfd>& fds) const;
  /// Advances handshakes as far as possible; returns the connections of peers that have just proven the key. Call it
  /// after each poll, whichever descriptors were ready.
  std::vector<Connection> admit();
  /// Drops all peers that are not admitted yet; ranks among them connect again.
  void drop_all() { pending_.clear(); }
  /// Stops listening and drops all peers that are not admitted yet.
  void close();
  /// How many peers were dropped.
  std::int64_t dropped() const { return dropped_; }
  /// Describes the dropped peers, as sentences to append to a message: first those with another key. "" if there are
  /// none.
  std::string describe_drops() const;
  /// The error while accepting fails for lack of file descriptors or memory; otherwise "".
  const std::string& accept_error() const { return accept_error_; }

 private:
  struct Pending {
    Connection connection;
    ServerHandshake handshake;
    Deadline deadline;
    Deadline patience;  ///< after this time, the connection may be dropped to make room
    bool was_silent = false;
  };
  using PendingList = std::list<Pending>;
  void accept_some();
  PendingList::iterator oldest_silent();
  bool make_room(PendingList::iterator stranger, const std::string& reason);
  Status advance(Pending& pending) const;
  void count_drop(const std::string& peer, const Error& reason);

  Socket listener_;
  Key key_;
  Purpose purpose_;
  Limits limits_;
  PendingList pending_;
  std::int64_t dropped_ = 0;
  std::string last_drop_;              ///< of those with this key, or without any
  std::int64_t with_another_key_ = 0;  ///< of the dropped ones
  std::string last_with_another_key_;
  std::string accept_error_;
  bool has_warned_ = false;  ///< of that, in the log
  Deadline accept_again_ = Deadline::after_ms(0);
};

}  // namespace strait
