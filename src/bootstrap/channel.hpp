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

/// A rank that runs into its deadline waits this long for word from the one who knows for whom all are waiting: rank 0,
/// or the root while they join. On a busy machine it may be late.
inline constexpr std::int64_t verdict_ms = 200;

/// One rank's end of the out-of-band channel: small collectives over TCP, for setting things up and for bad news. Ranks
/// form a binary tree: rank r's parent is rank (r - 1) / 2.
///
/// All ranks call the same operations in the same order, one at a time; ranks that do not are told (Code::mismatch).
/// Every operation ends by its deadline. The first failure, here or on another rank, ends the channel on all ranks:
/// operations return that error from then on. error(), check() and announce() may be called from any thread at any
/// time.
class Channel {
 public:
  /// A channel of one rank, without any network.
  static std::unique_ptr<Channel> alone(PeerInfo self);
  /// Says goodbye: peers that need this rank afterwards are told that it has left.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// By rank.
  const std::vector<PeerInfo>& peers() const { return peers_; }
  const PeerInfo& self() const { return peers_[static_cast<std::size_t>(rank_)]; }
  /// For further connections between the same ranks: what they prove, what tells them from other ranks with that key,
  /// and the address (port 0) that this rank listens at. Of no meaning where there is one rank.
  const Key& key() const { return key_; }
  const Session& session() const { return session_; }
  const SocketAddress& address() const { return address_; }
  /// Where this rank listens for others in rejoin(): nothing does until then.
  const Socket& meeting() const { return meeting_; }

  /// Every rank's bytes, by rank. Ranks may give different lengths; together at most 64 MiB.
  Result<std::vector<Bytes>> all_gather(std::span<const std::byte> mine, const Wait& wait);
  /// `root`'s bytes, on every rank; the others' `mine` is not read.
  Result<Bytes> broadcast(std::span<const std::byte> mine, int root, const Wait& wait);
  Status barrier(const Wait& wait);

  /// The channel's sticky error.
  Status error() const;
  /// Looks, without waiting, whether a neighbour has died or sent bad news, and passes it on. For a watchdog to call
  /// between operations, so that bad news gets past ranks that are busy elsewhere.
  Status check();
  /// Ends the channel on all ranks with this error.
  void announce(const Error& error);
  /// What else is to end the channel on all ranks: waits ask for it every 50 ms, and so does check(). An operation for
  /// which all is on its way completes all the same. Null: nothing. Called between operations.
  void heed(std::function<Status()> news);

 private:
  friend class ChannelBuilder;
  struct Neighbour {
    int rank;
    Connection connection;
    std::deque<Frame> inbox{};  ///< frames of operations; they may be ahead of this rank by one operation
    bool left = false;
    std::optional<Error> bad_news{};  ///< counts once what came before it has been used
  };
  /// What one collective does with what arrives.
  struct Operation {
    OperationHead head;
    std::function<bool(const Neighbour&)> needs;  ///< the operation cannot go on without this neighbour
    std::function<Status(Neighbour&, const Frame&, const OperationHead&, Deserializer&)> take;
    std::function<bool()> done;
    std::function<std::vector<int>()> missing;  ///< ranks not heard of, as far as this rank can tell
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
  /// What heed() was given says.
  Status ask_for_news() const { return news_ ? news_() : Status(); }
  void tell_announced();
  void poll_all(Deadline deadline);
  bool wants_write() const;
  tl::unexpected<Error> expire(const Operation& operation);
  /// Makes the error sticky and tells everybody but `from`.
  tl::unexpected<Error> break_channel(const Error& error, const Neighbour* from = nullptr);
  tl::unexpected<Error> break_at_end_of(const Neighbour& neighbour, const std::string& when);

  const int rank_;
  const int ranks_;
  std::vector<PeerInfo> peers_;  ///< empty until the first operation, which exchanges them
  Key key_{};
  Session session_{};
  SocketAddress address_;
  Socket meeting_;
  std::vector<Neighbour> neighbours_;
  std::optional<Connection> root_;  ///< until all ranks are linked: bad news may come from there, too
  std::uint64_t sequence_ = 0;
  std::function<Status()> news_;
  std::mutex operation_mutex_;  ///< held, by a Turn, by whoever uses the connections
  mutable std::mutex error_mutex_;
  std::optional<Error> error_;
  std::optional<Error> to_announce_;
};

/// The connections are this thread's; or not, where it does not wait for them and another one has them. What was
/// announced meanwhile, and would not wait either, goes out when they are free again.
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
