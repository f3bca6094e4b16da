#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bootstrap/connection.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/messages.hpp"

namespace strait {

/// A rank whose deadline has passed waits this much longer for the error of whoever knows which ranks are missing: rank
/// 0, or the root while ranks join. On a busy machine that message may be late.
inline constexpr std::int64_t verdict_ms = 200;

/// One rank's end of the out-of-band channel: small collectives over TCP, for setting up communicators and for
/// spreading errors. The ranks form a binary tree: the parent of rank r is rank (r - 1) / 2.
///
/// All ranks call the same operations in the same order, one at a time; if they do not, all get an error
/// (Code::mismatch). Every operation ends by its deadline. The first failure, on any rank, ends the channel on all
/// ranks: operations return that error from then on. error(), check() and announce() may be called from any thread at
/// any time.
class Channel {
 public:
  /// Makes a channel of one rank, without any network.
  static std::unique_ptr<Channel> alone(PeerInfo self);
  /// Sends a goodbye: peers that still need this rank are told that it has left.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Identities of all ranks, by rank.
  const std::vector<PeerInfo>& peers() const { return peers_; }
  const PeerInfo& self() const { return peers_[static_cast<std::size_t>(rank_)]; }
  /// For further connections between the same ranks: the key that both sides prove, the session that distinguishes
  /// these ranks from other sets of ranks with the same key, and the address (with port 0) on which this rank listens.
  /// Meaningless in a channel of one rank.
  const Key& key() const { return key_; }
  const Session& session() const { return session_; }
  const SocketAddress& address() const { return address_; }
  /// The socket at which this rank listens in rejoin(). It is bound, but does not listen until then.
  const Socket& rejoin_socket() const { return rejoin_socket_; }

  /// Returns every rank's bytes, by rank. Their lengths may differ; their sum is at most 64 MiB.
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine, const Wait& wait);
  /// Returns `root`'s bytes on every rank; the others' `mine` is ignored. At most 64 MiB.
  Result<Bytes> broadcast(std::span<const std::byte> mine, int root, const Wait& wait);
  Status barrier(const Wait& wait);

  /// Returns the channel's sticky error, or success.
  Status error() const;
  /// Checks without waiting whether a neighbour has died or sent an error, and passes that on. A watchdog calls this
  /// between operations, so that errors get past ranks that are busy elsewhere.
  Status check();
  /// Ends the channel on all ranks with this error. Does not wait for an operation in progress.
  void announce(const Error& error);
  /// Sets a callback whose error ends the channel on all ranks, too. Waits call it every 50 ms, and so does check(). An
  /// operation whose data is already on its way still completes. Null removes the callback. Call this between
  /// operations only.
  void set_error_source(std::function<Status()> source);
  /// Names the user's call that the operations from now on belong to, for errors and the log: "split of the
  /// communicator". Call this between operations only.
  void set_call(std::string call) { call_ = std::move(call); }
  const std::string& call() const { return call_; }
  /// What the error of an operation says, after its call's name, if its deadline has passed.
  static constexpr const char* unfinished_text = " did not finish by its deadline: ";

 private:
  friend class ChannelBuilder;
  struct Neighbour {
    int rank;
    Connection connection;
    std::deque<Frame> inbox{};  ///< frames of operations; the neighbour may be one operation ahead of this rank
    bool left = false;
    std::optional<Error> bad_news{};  ///< error that it sent; takes effect when the frames before it have been used
  };
  /// How one collective handles the frames that arrive.
  struct Operation {
    OperationHead head;
    std::function<bool(const Neighbour&)> needs;  ///< whether the operation cannot go on without this neighbour
    std::function<Status(Neighbour&, const Frame&, const OperationHead&, Deserializer&)> take;
    std::function<bool()> done;
    std::function<std::vector<int>()> missing;  ///< ranks whose data this rank itself has to pass on and has not got
  };
  enum Kind : std::uint8_t { kind_all_gather = 1, kind_broadcast = 2, kind_barrier = 3 };

  class Turn;

  Channel(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  Neighbour* parent() { return rank_ > 0 ? &neighbours_.front() : nullptr; }
  bool is_child(const Neighbour& neighbour) const { return neighbour.rank > rank_; }
  int neighbour_towards(int target) const;
  std::string describe(int rank) const;
  std::string describe(const OperationHead& head) const;

  Result<std::vector<Bytes>> gather(Kind kind, std::span<const std::byte> mine, const Wait& wait);
  Status run(Operation& operation, const Wait& wait);
  Status progress(Operation& operation);
  Status take_frames(Neighbour& neighbour, Operation& operation);
  Status receive(Neighbour& neighbour);
  Status look_at_root();
  /// Returns the error of the callback given to set_error_source(), if any.
  Status ask_error_source() const { return error_source_ ? error_source_() : Status(); }
  void tell_announced();
  void poll_all(Deadline deadline);
  bool wants_write() const;
  std::string describe_wait(const Operation& operation) const;
  tl::unexpected<Error> expire(const Operation& operation);
  /// Makes the error sticky and sends it to all neighbours except `from`.
  tl::unexpected<Error> break_channel(const Error& error, const Neighbour* from = nullptr);
  tl::unexpected<Error> break_at_end_of(const Neighbour& neighbour, const std::string& when);

  const int rank_;
  const int ranks_;
  std::vector<PeerInfo> peers_;  ///< empty until the first operation, which exchanges them
  Key key_{};
  Session session_{};
  SocketAddress address_;
  Socket rejoin_socket_;
  std::vector<Neighbour> neighbours_;
  /// Connection to the root until all ranks are linked: errors may come from there, too.
  std::optional<Connection> root_;
  std::uint64_t sequence_ = 0;
  std::string call_ = "initialization of the communicator";
  std::int64_t remind_after_ms_ = WaitReminder::default_first_ms;
  std::function<Status()> error_source_;
  std::mutex operation_mutex_;  ///< held, by a Turn, by the thread that uses the connections
  mutable std::mutex error_mutex_;
  std::optional<Error> error_;
  std::optional<Error> to_announce_;
};

/// Exclusive use of the channel's connections. Constructed with std::try_to_lock, it does not wait for a thread that
/// uses them, and then converts to false. announce() does not wait either: an error announced meanwhile is sent when
/// the connections are free again.
class Channel::Turn {
 public:
  explicit Turn(Channel& channel) : channel_(channel), lock_(channel.operation_mutex_) {}
  Turn(Channel& channel, std::try_to_lock_t now) : channel_(channel), lock_(channel.operation_mutex_, now) {}
  ~Turn() {
    if (!lock_) return;
    lock_.unlock();
    channel_.tell_announced();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  explicit operator bool() const { return lock_.owns_lock(); }

 private:
  Channel& channel_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace strait
