#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "executor/copy_engine/lane.hpp"
#include "executor/copy_engine/peer_traffic.hpp"
#include "executor/copy_engine/peer_words.hpp"
#include "executor/copy_engine/stream_driver.hpp"
#include "executor/copy_engine/wait.hpp"

namespace strait::copy_engine {

/// Carries large collectives of GPU ranks that write into one another's memory; one object per rank. Copy engines copy
/// chunks into windows in the peers' memory, and from there to their destination. For reductions a kernel of a few
/// thread blocks adds up what has arrived. Copies use no SM, and the kernel is launched first, so that it gets its SMs
/// early.
///
/// Chunk k of a rank for a peer goes into slot k % depth of its window there. Words (PeerWords), which streams and the
/// kernel write and wait for, order all chunks. Once enqueued, a call needs nothing from the host.
///
/// All ranks meet twice in a call, by words. At the beginning a rank writes begun() to all others, and each of its
/// lanes waits for begun() of all others before it accesses a peer. At the end, after all its lanes and its kernel, a
/// rank clears its begun(), writes done() to all others, waits for done() of all others, and clears all its other
/// words. So no word is written before it has been cleared, or cleared before it has been seen:
///  - What a rank writes to a peer during a call (also by its kernel, which adds only what all peers have sent) comes
///    after the peer's begun(), before which the peer has cleared the words of the previous call. It also comes before
///    the rank's own done(), for which the peer waits before it clears the words.
///  - begun() of the next call comes after the peer's done(), before which the peer has cleared begun() of this call.
///  - done() of the next call comes after the peer's begun() of that call, before which the peer has cleared done() of
///    this one.
/// Every rank uses a lane in every call, even if it only receives, so all ranks have seen every begun() when they clear
/// it. A peer's windows are free when a call begins, because the peer was done with the previous call. The value of
/// begun() is a hash of the call, and is waited for with equality, so that different calls never meet.
///
/// In a reduce, only the root has an output in which sums can be kept. The other ranks keep theirs where messages from
/// the root would arrive, because there are none. A reduce that does not fit there is done in several parts.
///
/// Data for peers goes through two lanes, which chunks use in turn. In each lane it goes to one peer after the other,
/// beginning with the rank after this one. An engine carries large copies one by one; with a lane for each peer it
/// would choose the order itself, so that several ranks would use one peer's link while other links are idle. In a
/// broadcast, data that a rank passes on has a lane for each peer, because its time of arrival is not known: no copy
/// waits behind one whose chunk is late.
///
/// If peers' outputs are mapped here, windows are not needed: between the two meetings everything is copied directly to
/// its destination (enqueue_in_place()), mostly as a whole. The following calls go in chunks:
///  - a broadcast to more than two ranks, whose receivers pass their parts on, so that no link carries more than the
///    length of the message;
///  - an all-to-all in place: a rank saves a chunk of what it sends to a peer in the window that this peer has here,
///    and tells the peer. It sends the chunk from there once the peer has saved the one that it overwrites. A slot is
///    free again when its lane has proceeded.
///
/// Calls are enqueued on the user's stream and return. All ranks make the same calls in the same order. One thread at a
/// time calls enqueue().
class PeerCopies {
 public:
  /// By rank, as this device addresses them.
  using PeerAddresses = std::array<std::byte*, kernels::max_ranks>;
  static constexpr std::uint32_t depth = 4;
  /// A message is cut into `wanted_chunks` chunks, so that they overlap, unless they would be smaller than this: the
  /// fixed cost of a chunk is that of copying some megabytes.
  static constexpr std::size_t least_chunk_bytes = std::size_t{2} << 20;
  static constexpr std::size_t wanted_chunks = 4;

  struct Setup {
    std::shared_ptr<StreamDriver> driver;  ///< used by this rank's thread only
    std::uint32_t rank = 0;
    std::uint32_t ranks = 2;  ///< at least 2
    /// By rank, of `window_bytes`, as this device addresses them: this rank's window in the peer's memory, and the
    /// peer's window in this rank's memory. Kept by the caller, like everything below.
    PeerAddresses windows_there{}, windows_here{};
    std::size_t window_bytes = 0;  ///< 0: there are no windows, and only calls in place are carried
    /// By rank, PeerWords::lanes words of device memory each, as this device addresses them: where this rank tells the
    /// peer's kernel what it has contributed, and where the peer tells this rank's kernel.
    std::array<std::uint32_t*, kernels::max_ranks> contributed_there{}, contributed_here{};
    /// PeerWords::size_bytes() of memory that all ranks share, zeroed before the first rank uses it: its address in
    /// this process, and for its device.
    std::byte* host_words = nullptr;
    std::byte* device_words = nullptr;
    /// Launches the kernel of Add, after filling in `ring` and `shares_done`. The kernel needs no deadline of its own,
    /// because wait() tells which rank is late.
    std::function<Status(const CopyCall& call, kernels::Add add, StreamDriver::Stream stream)> launch;
    /// Returns whether the communicator has failed. Called from any thread.
    std::function<bool()> has_failed;
  };
  static Result<std::unique_ptr<PeerCopies>> open(Setup setup);
  /// Waits until this rank's streams are idle, which after a failure of the communicator is soon.
  ~PeerCopies();
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;

  /// The largest number of chunks of a call, to all peers together. With more, the driver's queues could not hold the
  /// commands, and one thread that drives several GPUs would block on one rank's queue before it gives the next rank
  /// any.
  static constexpr std::size_t most_chunks = 256;
  bool supports(const CopyCall& call) const;
  /// Returns whether the call can be enqueued in place. This needs a collective in which every rank knows where all
  /// outputs are, provided that they are at the same place on all ranks. Only the root knows where the output of a
  /// gather is, and the output of a scatter's root is elsewhere if its call is in place.
  bool supports_in_place(const CopyCall& call) const;
  /// Returns whether in place the call would go in chunks that wait for those of other ranks.
  bool goes_in_chunks(const CopyCall& call) const;

  /// Enqueues a supported call. `hash` is the same on all ranks that make the same call. After an error of the driver
  /// this object can no longer be used, and the outputs of all calls that were running are undefined.
  Status enqueue(const CopyCall& call, std::uint32_t hash, StreamDriver::Stream stream);
  /// Enqueues a call that supports_in_place(), directly into the peers' outputs. `hash` must also identify these
  /// outputs. An all-to-all is in place on all ranks or on none; otherwise the ranks do not meet.
  Status enqueue_in_place(const CopyCall& call, const PeerAddresses& outputs, std::uint32_t hash,
                          StreamDriver::Stream stream);

  /// Ends the waits of this rank's streams, including those of calls enqueued or captured before. To be called
  /// repeatedly after a failure, from one thread, because a peer's stream that still runs may write a lower value
  /// meanwhile.
  void release_waits();

  /// Returns for how long the call that this rank's streams have reached has not progressed, and which rank is furthest
  /// behind; nothing if there is no such call. From one thread.
  std::optional<Wait> wait();

 private:
  enum class Kind : std::uint8_t { contribution, message };
  using Lanes = std::vector<Lane>;
  static constexpr std::size_t grain_bytes = 4096;
  /// How a call is cut into chunks.
  struct Cut {
    std::size_t chunk_bytes = 0;
    std::uint32_t chunks = 0;  ///< number of chunks of the longest message
    /// Offset of the message slots in a window; those of contributions come first.
    std::size_t messages_begin = 0;
  };

  /// A call whose data is copied directly to its destination.
  struct InPlaceCall {
    PeerTraffic traffic;
    PeerTraffic::Spans destinations;  ///< destination of what is sent to each peer
    /// Whether it must be saved first, because data from that peer overwrites it.
    bool saves = false;
    Cut cut{};
  };

  explicit PeerCopies(Setup setup) : setup_(std::move(setup)), words_{setup_.ranks} {}
  Status prepare();
  std::size_t most_elements(const CopyCall& call) const;
  Status enqueue_part(const CopyCall& call, std::uint32_t hash, StreamDriver::Stream stream);
  static Cut cut_into(std::size_t bytes, std::size_t wanted_chunks, std::size_t largest_bytes);
  Cut cut(const PeerTraffic& traffic) const;
  Cut cut_in_place(const CopyCall& call, const PeerTraffic& traffic) const;
  std::size_t message_lanes(const PeerTraffic& traffic, const Cut& cut) const;
  std::size_t message_lane(const PeerTraffic& traffic, std::uint32_t after, std::uint32_t chunk) const;
  InPlaceCall in_place_call(const CopyCall& call, const PeerAddresses& outputs) const;
  Status save(const InPlaceCall& in_place, std::uint32_t after, std::uint32_t chunk);
  Status place(const InPlaceCall& in_place, std::uint32_t after, std::uint32_t chunk);
  Status begin(std::uint32_t hash, StreamDriver::Stream stream);
  Status fork(std::uint32_t hash, StreamDriver::Stream from, std::span<Lane* const> lanes);
  Status launch_reduction(const CopyCall& call, const PeerTraffic& traffic, const Cut& cut,
                          StreamDriver::Stream stream);
  Status move(const PeerTraffic& traffic, const Cut& cut);
  Status push(Kind kind, const PeerTraffic& traffic, const Cut& cut, std::uint32_t chunk);
  Status pull(const PeerTraffic& traffic, const Cut& cut, std::uint32_t chunk, bool relayed);
  Status join(std::span<Lane* const> lanes, StreamDriver::Stream to);
  Status end(const PeerTraffic& traffic, StreamDriver::Stream stream);
  void wait_for(Lane& lane, std::size_t word, std::uint32_t value) const;
  void tell(Lane& lane, std::size_t word, std::uint32_t value) const;
  static void tell(Lane& lane, std::uint32_t* word, std::uint32_t value);
  void clear(Lane& lane, std::size_t word, std::uint32_t words) const;
  Status flush(Lane& lane) { return lane.flush(*setup_.driver); }
  std::vector<Lane*> all_lanes() { return lanes_of(true, messages_.size(), true); }
  std::vector<Lane*> lanes_of(bool contributes, std::size_t sending, bool receives);
  std::atomic_ref<std::uint32_t> host_word(std::size_t word) const;
  std::uint64_t progress_of(std::uint32_t peer, std::uint32_t hash) const;

  Setup setup_;
  PeerWords words_;
  Lanes contributions_, messages_, pulls_;
  StreamDriver::Event begun_ = nullptr;
  Standstill standstill_;
};

}  // namespace strait::copy_engine
