#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "transport/control.hpp"
#include "transport/link.hpp"
#include "transports/tcp/mesh.hpp"
#include "transports/tcp/peer_socket.hpp"
#include "transports/tcp/ucx/ucx.hpp"

/// The engine of one rank's TCP connections: it sends and receives all messages, and keeps this rank's copy of the
/// control words in step with those of the other ranks.
///
/// Two threads drive it. One is the rank's own while it waits in an operation, so that a message costs no thread
/// switch. The other is a thread of the engine, because a rank between operations must still receive what peers send,
/// send what a socket could not take at once, and notice aborts and deaths. While the rank is busy elsewhere, this
/// thread sleeps on the sockets. While the rank uses the engine, this thread only checks once a millisecond whether the
/// rank also drives it: otherwise it would contend for the lock.
namespace strait::tcp {

struct Geometry {
  std::uint32_t depth = 4;  ///< slots of a link, at its writer and at each reader
  std::size_t slot_bytes = 256 << 10;
};

/// The writer's end of a link. A slot is free again only when every reader has released it. So each reader has room for
/// every published message, which can be sent immediately.
struct Outgoing {
  std::uint64_t stream = 0;
  std::vector<std::uint32_t> readers;
  std::vector<std::uint64_t> released;  ///< number of messages released, by reader
  std::unique_ptr<std::byte[]> slots;
  std::uint64_t next = 0;  ///< number of the next message to be written
};

/// A reader's end of a link.
struct Incoming {
  std::uint64_t stream = 0;
  std::uint32_t writer = 0;
  std::unique_ptr<std::byte[]> slots;
  std::vector<CallSignature> signatures;
  std::vector<const std::byte*> arrived_at;  ///< by slot: address of the message, in the slot or in what was `place`
  std::span<std::byte> place;  ///< memory into which the next message to be acquired may be received; empty: none
  CallSignature expected;      ///< signature that a message must have to be received there
  std::unique_ptr<bool[]> has_arrived;  ///< by slot: whether the payload of an announced message has arrived
  std::uint64_t announced = 0;          ///< messages whose header has come
  std::uint64_t arrived = 0;            ///< announced messages whose payloads have all arrived, without a gap
  std::uint64_t released = 0;
  std::uint64_t reported = 0;  ///< released messages of which the writer has been told
};

class Engine {
 public:
  Engine(std::uint32_t rank, const Geometry& geometry, std::vector<MeshPeer> mesh);
  /// Sends what is queued and says goodbye. Takes long only if a peer is stopped: two seconds, and a minute more if
  /// what is queued for it would be lost.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Has UCX carry long messages to and from the ranks that `worker` is connected to. Must be called before start().
  void use_ucx(std::unique_ptr<ucx::Worker> worker) { ucx_ = std::move(worker); }
  /// Returns the UCX worker; null if there is none. Call it with mutex() held.
  const ucx::Worker* ucx() const { return ucx_.get(); }
  /// Starts the engine's thread. Fails if the system lacks descriptors or threads.
  Status start();

  const Geometry& geometry() const { return geometry_; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(peers_.size()); }
  /// This rank's own copies of the control words, kept in step by messages.
  Control& control() { return control_; }
  RankControl& rank_control(std::uint32_t rank) { return controls_[rank]; }
  /// Whether the connection to this rank ended without a goodbye. May be called from any thread.
  bool has_died(std::uint32_t rank) const { return peers_[rank].has_died.load(std::memory_order_acquire); }
  /// Returns how the connection to this rank ended.
  std::string end_reason(std::uint32_t rank) {
    const std::lock_guard lock(mutex_);
    return peers_[rank].socket.end_reason();
  }

  /// Tells the peers that this rank's process ends in good order, and waits until they have received that or the
  /// deadline has passed.
  void announce_exit(const Deadline& deadline);

  // All functions below must be called with this lock held. Those that open something, and post(), throw std::bad_alloc
  // if memory runs out. If memory runs out while messages are sent or received, the communicator fails on all ranks,
  // and this rank's links and signals make no more progress (is_short_of_memory()).
  std::mutex& mutex() { return mutex_; }
  bool is_short_of_memory() const { return is_short_of_memory_; }
  Outgoing& outgoing(std::uint64_t stream, const std::vector<std::uint32_t>& readers);
  Incoming& incoming(std::uint64_t stream, std::uint32_t writer);
  /// Returns the counter of how often the signal has come. The reference stays valid.
  std::uint64_t& signals(std::uint64_t stream, std::uint32_t from) { return peers_[from].signals[stream]; }
  /// Reserves queue memory for signals to that rank.
  void prepare_signals(std::uint32_t to) { peers_[to].socket.reserve(1); }
  std::byte* next_slot(const Outgoing& link) const {
    return link.slots.get() + link.next % geometry_.depth * geometry_.slot_bytes;
  }
  /// Sends `bytes` to all readers. They lie in the next slot or elsewhere; in the latter case, what the sockets do not
  /// take at once is copied to the slot.
  void publish(Outgoing& link, const CallSignature& signature, std::span<const std::byte> bytes);
  void release(Incoming& link);
  /// Ensures that nothing more is written to the `place` of any incoming link that is set now.
  void abandon_places();
  void signal(std::uint64_t stream, std::uint32_t to);
  void post(std::uint64_t sequence, const CallSignature& signature);
  /// Whether every rank that is still connected has told its collective number `sequence` (or a later one).
  bool has_peer_calls(std::uint64_t sequence);
  /// Does all pending work, for a rank that does nothing else here.
  void do_pending_work() {
    note_activity();
    progress();
  }
  /// Reads what has come from this rank; every few calls also does all other pending work.
  void poll(std::uint32_t rank);
  void poll_all();

 private:
  struct Peer {
    PeerSocket socket;
    UniqueFd pidfd;
    std::atomic<bool> has_died{false};
    std::unordered_map<std::uint64_t, std::unique_ptr<Incoming>> incoming;
    std::unordered_map<std::uint64_t, std::uint64_t> signals;
    std::array<char, max_error_bytes + 1> error_text{};  ///< text of an arriving error frame
    std::vector<Incoming*> unreported_releases;  ///< links with released messages that the peer has not been told of
    std::uint64_t posted = 0;                    ///< number of its last collective
    bool is_dirty = false;               ///< something is queued that has not been tried to send; listed in dirty_
    bool waits_for_room = false;         ///< the epoll set asks for EPOLLOUT
    bool is_down = false;                ///< the end of the connection has been handled
    bool is_near = false;                ///< Socket::stays_on_host()
    Deadline death = Deadline::never();  ///< if its process has ended: until when what it sent may still arrive
    std::chrono::steady_clock::time_point answered_at{};  ///< when its host last answered, or last owed no answer
  };

  /// Returns the slot for the next message to arrive.
  std::byte* slot_of(const Incoming& link) const {
    return link.slots.get() + link.announced % geometry_.depth * geometry_.slot_bytes;
  }
  std::byte* place_of(Peer& peer, const FrameHeader& frame);
  bool take(std::uint32_t rank, const FrameHeader& frame);
  bool take_slot(Peer& peer, const FrameHeader& frame);
  bool take_announced(std::uint32_t rank, const FrameHeader& frame);
  void advance(Incoming& link) const;
  /// Whether UCX carries a message of this size to that rank.
  bool goes_by_ucx(std::uint32_t rank, std::size_t bytes) const;
  void drive_ucx();
  bool take_released(std::uint32_t rank, const FrameHeader& frame);
  void take_call(std::uint32_t rank, const FrameHeader& frame);
  void take_error(std::uint32_t rank, const FrameHeader& frame);
  bool take_signal(Peer& peer, std::uint64_t stream);

  /// Runs `work`; if memory runs out, the communicator fails.
  template <class F>
  void attempt(F&& work) noexcept {
    try {
      work();
    } catch (const std::bad_alloc&) {
      run_short_of_memory();
    }
  }
  void run_short_of_memory() noexcept;
  void mark_dirty(std::uint32_t rank);
  void flush(std::uint32_t rank);
  void report_releases(Peer& peer);
  void send(std::uint32_t rank);
  void settle(std::uint32_t rank);
  void progress();
  void flush_dirty();
  void handle(std::uint64_t tag);
  void tell_error();
  void examine_peers(std::chrono::steady_clock::duration unseen);
  bool is_silent(Peer& peer, std::chrono::steady_clock::duration unseen) const;
  void note_activity();
  bool may_sleep();
  void wake() const;
  void take_wake() const;
  void run();
  void say_goodbye();
  bool say_last(FrameKind what, const Deadline& deadline);
  bool has_queued(const Peer& peer) const;
  bool await(const std::function<bool()>& condition, const Deadline& deadline);
  std::unique_ptr<std::byte[]> new_slots() const;

  const std::uint32_t rank_;
  const Geometry geometry_;
  std::mutex mutex_;
  Control control_;
  std::unique_ptr<RankControl[]> controls_;
  std::vector<Peer> peers_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Outgoing>> outgoing_;
  std::unique_ptr<ucx::Worker> ucx_;
  std::vector<Incoming*> by_ucx_;  ///< links for which UCX is still receiving messages
  std::vector<std::uint32_t> dirty_;
  bool error_told_ = false;
  bool is_short_of_memory_ = false;
  bool has_shortage_ = false;  ///< the system lacked memory for a socket call in the last progress()
  std::uint32_t polls_ = 0;
  std::chrono::steady_clock::time_point examined_;
  Deadline next_death_ = Deadline::never();  ///< the earliest Peer::death of all peers

  pid_t owner_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::atomic<std::uint64_t> activity_{0};    ///< counts calls of the rank's own thread
  std::atomic<std::uint64_t> progressed_{0};  ///< counts calls of progress(), by either thread
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace strait::tcp
