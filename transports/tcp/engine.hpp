#pragma once

#include <array>
#include <chrono>
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

/// What moves the bytes of one rank's TCP connections, and keeps its copy of the control words in step with those of
/// the other ranks.
///
/// Two threads drive it. The rank's own, while it waits in an operation: a message then costs no switch of threads. And
/// a thread of the engine, since a rank between two operations must still take in what peers send, send what its socket
/// could not take at once, and notice aborts and deaths. It sleeps on the sockets while the rank is busy elsewhere, and
/// once a millisecond only looks whether the rank drives the engine itself: it would hold the lock up.
namespace strait::tcp {

struct Geometry {
  std::uint32_t depth = 4;  ///< slots of a link, at its writer and at each reader
  std::size_t slot_bytes = 256 << 10;
};

/// A link at its writer. A slot is free again when every reader has given it back, so each published message has its
/// place at the reader and is sent at once.
struct Outgoing {
  std::uint64_t stream = 0;
  std::vector<std::uint32_t> readers;
  std::vector<std::uint64_t> released;  ///< messages, by reader
  std::unique_ptr<std::byte[]> slots;
  std::uint64_t next = 0;  ///< message to be written
};

/// A link at a reader.
struct Incoming {
  std::uint64_t stream = 0;
  std::uint32_t writer = 0;
  std::unique_ptr<std::byte[]> slots;
  std::vector<CallSignature> signatures;
  std::vector<const std::byte*> arrived_at;  ///< in its slot, or in what was `place`
  std::span<std::byte> place;                ///< where the next message may go that is to be acquired; empty: nowhere
  CallSignature expected;                    ///< of such a message
  std::unique_ptr<bool[]> has_arrived;       ///< by slot, of the announced
  std::uint64_t announced = 0;               ///< messages of which the header has come
  std::uint64_t arrived = 0;                 ///< of these, with all before them
  std::uint64_t released = 0;
  std::uint64_t told = 0;  ///< of the released, those that the writer knows of
};

class Engine {
 public:
  Engine(std::uint32_t rank, const Geometry& geometry, std::vector<MeshPeer> mesh);
  /// Sends what is queued and says goodbye, for at most two seconds.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// From now on long messages to and from the ranks that it is connected with go by it. Before start().
  void carry_by(std::unique_ptr<ucx::Worker> worker) { ucx_ = std::move(worker); }
  /// Null: there is none. Under mutex().
  const ucx::Worker* ucx() const { return ucx_.get(); }
  /// Fails where the system gives no descriptors or no thread.
  Status start();

  const Geometry& geometry() const { return geometry_; }
  /// This rank's own copies, kept in step by messages.
  Control& control() { return control_; }
  RankControl& rank_control(std::uint32_t rank) { return controls_[rank]; }
  /// Whether the connection to this rank ended without a goodbye. From any thread.
  bool has_died(std::uint32_t rank) const { return peers_[rank].has_died.load(std::memory_order_acquire); }
  /// How it ended.
  std::string end_reason(std::uint32_t rank) {
    const std::lock_guard lock(mutex_);
    return peers_[rank].socket.end_reason();
  }

  /// Tells the peers that this rank's process ends in good order, and waits until they have heard it or the deadline
  /// has passed.
  void say_ended(const Deadline& deadline);

  // All that follows is called with this lock held. What opens something, and post(), throw where there is no memory.
  // Where what has to be sent or received finds none, the communicator fails on all ranks, and this one's links and
  // signals move nothing any more.
  std::mutex& mutex() { return mutex_; }
  bool is_short_of_memory() const { return is_short_of_memory_; }
  Outgoing& outgoing(std::uint64_t stream, const std::vector<std::uint32_t>& readers);
  Incoming& incoming(std::uint64_t stream, std::uint32_t writer);
  /// How often the signal has come.
  std::uint64_t& signals(std::uint64_t stream, std::uint32_t from) { return peers_[from].signals[stream]; }
  /// Makes room for what signals to that rank need.
  void prepare_signals(std::uint32_t to) { peers_[to].socket.reserve(1); }
  std::byte* next_slot(const Outgoing& link) const {
    return link.slots.get() + link.next % geometry_.depth * geometry_.slot_bytes;
  }
  /// `bytes`: in the next slot, or elsewhere; then what the sockets do not take at once is copied there.
  void publish(Outgoing& link, const CallSignature& signature, std::span<const std::byte> bytes);
  void release(Incoming& link);
  /// From now on nothing is put into any Incoming::place that there is now.
  void abandon_places();
  void signal(std::uint64_t stream, std::uint32_t to);
  void post(std::uint64_t sequence, const CallSignature& signature);
  /// Whether everybody who still can has told of its collective `sequence`.
  bool knows_calls(std::uint64_t sequence);
  /// All that there is to do, for a rank that does nothing else here.
  void take_in() {
    note_activity();
    progress();
  }
  /// Takes in what has come from this rank; now and then all else that there is to do.
  void poll(std::uint32_t rank);
  void poll_all();

 private:
  struct Peer {
    PeerSocket socket;
    UniqueFd pidfd;
    std::atomic<bool> has_died{false};
    std::unordered_map<std::uint64_t, std::unique_ptr<Incoming>> incoming;
    std::unordered_map<std::uint64_t, std::uint64_t> signals;
    std::array<char, max_error_bytes + 1> error_text{};  ///< arriving
    std::vector<Incoming*> untold;                       ///< links with released messages that it does not know of
    std::uint64_t posted = 0;                            ///< its last collective
    bool is_dirty = false;                               ///< has something queued that nobody has tried to send
    bool waits_for_room = false;                         ///< EPOLLOUT is asked for
    bool is_down = false;                                ///< the end of the connection has been dealt with
    bool is_near = false;                                ///< Socket::stays_on_host()
    Deadline death = Deadline::never();  ///< its process is gone; what it sent may still arrive until then
    std::chrono::steady_clock::time_point answered_at{};  ///< or when it last owed no answer
  };

  /// Where the next message goes that arrives.
  std::byte* slot_of(const Incoming& link) const {
    return link.slots.get() + link.announced % geometry_.depth * geometry_.slot_bytes;
  }
  std::byte* place_of(Peer& peer, const FrameHeader& frame);
  bool take(std::uint32_t rank, const FrameHeader& frame);
  bool take_slot(Peer& peer, const FrameHeader& frame);
  bool take_announced(std::uint32_t rank, const FrameHeader& frame);
  void advance(Incoming& link) const;
  /// Whether a message to that rank goes by UCX.
  bool goes_by_ucx(std::uint32_t rank, std::size_t bytes) const;
  void drive_ucx();
  bool take_released(std::uint32_t rank, const FrameHeader& frame);
  void take_call(std::uint32_t rank, const FrameHeader& frame);
  void take_error(std::uint32_t rank, const FrameHeader& frame);
  bool take_signal(Peer& peer, std::uint64_t stream);

  /// Does it; where there is no memory for it the communicator has failed.
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
  void tell_released(Peer& peer);
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
  std::unique_ptr<std::byte[]> new_slots() const;

  const std::uint32_t rank_;
  const Geometry geometry_;
  std::mutex mutex_;
  Control control_;
  std::unique_ptr<RankControl[]> controls_;
  std::vector<Peer> peers_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Outgoing>> outgoing_;
  std::unique_ptr<ucx::Worker> ucx_;
  std::vector<Incoming*> by_ucx_;  ///< of which something is on its way by it
  std::vector<std::uint32_t> dirty_;
  bool error_told_ = false;
  bool is_short_of_memory_ = false;
  bool has_shortage_ = false;  ///< the last progress() met one of the system's
  std::uint32_t polls_ = 0;
  std::chrono::steady_clock::time_point examined_;
  Deadline next_death_ = Deadline::never();  ///< of all peers'

  pid_t owner_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::atomic<std::uint64_t> activity_{0};    ///< counts what the rank's own thread does here
  std::atomic<std::uint64_t> progressed_{0};  ///< counts progress(), by whichever thread
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace strait::tcp
