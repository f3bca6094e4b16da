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

/// Large collectives of GPU ranks that write into one another's memory, one object a rank. Copy engines carry chunks
/// into windows in the peers' memory, and from there to where they belong; of reductions a kernel of few thread blocks
/// adds up what has come. Copies take no SM, and the kernel is launched before all else, so that it has its SMs early.
///
/// Chunk k of a rank for a peer goes into slot k % depth of its window there. All chunks are in order by words
/// (PeerWords) that streams and the kernel write and wait for; once enqueued, a call needs nothing of the host.
///
/// All ranks meet twice in a call, by words. At its beginning a rank writes begun() to all others, and each of its
/// lanes waits for all of theirs before it reaches for a peer. At its end, behind all its lanes and its kernel, it
/// clears its begun(), writes done() to all others, waits for all of theirs, and clears all its other words. So no word
/// is written before it is cleared, or cleared before it was seen:
///  - What a rank writes to a peer in the middle of a call (the kernel too: it adds only what all peers have sent)
///    comes after the peer's begun(), which comes after the peer cleared what the call before left; and before the
///    rank's own done(), for which the peer waits before it clears.
///  - begun() of the next call comes after the peer's done(), before which the peer has cleared that of this call.
///  - done() of the next call comes after the peer's begun() of it, before which the peer has cleared that of this one.
/// Every rank has a lane in every call, so all have seen every begun() when they clear it, also one that only receives.
/// And a peer's windows are free when a call begins, for the peer was done with the one before.
/// begun() bears a hash of the call and is waited for with equality, so that calls that differ never meet.
///
/// A reduce's sums have no output to lie in, but at the root. They lie where the root would put messages for this rank,
/// of which there are none; a reduce of more than finds room there is made in several parts.
///
/// What goes to peers goes through two lanes, in turns by chunks, and in each to one peer after the other, beginning
/// with the rank after this one: an engine carries large copies one by one, and on a lane for each peer takes them in
/// an order of its own, so that several ranks are at one peer's link while others lie idle. What a broadcast's ranks
/// pass on comes when it comes, and so has a lane for each peer: no copy waits behind one whose chunk is late.
///
/// Where peers' outputs are mapped here, windows are spared: between the two meetings everything goes straight to where
/// it belongs (enqueue_in_place()), and mostly as a whole. In chunks goes
///  - a broadcast to more than two ranks, whose parts their receivers pass on, so that no link carries more than once
///  what the call is long;
///  - an all-to-all in place: a rank saves a chunk of what it sends a peer in the window that this peer has here, tells
///  it so, and sends it from there when the peer has saved the one that is written over. A slot is free when its lane
///  has gone on.
///
/// Calls are enqueued on the user's stream and return. All ranks make the same calls in the same order. One thread at a
/// time calls enqueue().
class PeerCopies {
 public:
  /// By rank, as this device addresses them.
  using PeerAddresses = std::array<std::byte*, kernels::max_ranks>;
  static constexpr std::uint32_t depth = 4;
  /// A message is cut into `wanted_chunks`, so that they overlap, if they are not smaller than this: what a chunk costs
  /// besides its bytes is as much as the copy of some megabytes.
  static constexpr std::size_t least_chunk_bytes = std::size_t{2} << 20;
  static constexpr std::size_t wanted_chunks = 4;

  struct Setup {
    std::shared_ptr<StreamDriver> driver;  ///< of this rank's thread
    std::uint32_t rank = 0;
    std::uint32_t ranks = 2;  ///< at least 2
    /// By rank, of `window_bytes`, as this device addresses them: this rank's window in the peer's memory, and the
    /// peer's in this rank's. Kept by the caller, as all that follows.
    PeerAddresses windows_there{}, windows_here{};
    std::size_t window_bytes = 0;  ///< 0: there are none, and calls are carried in place only
    /// By rank, PeerWords::lanes words of device memory each, as this device addresses them: where this rank tells the
    /// peer's kernel what it has contributed, and where the peer tells this rank's.
    std::array<std::uint32_t*, kernels::max_ranks> contributed_there{}, contributed_here{};
    /// PeerWords::size_bytes() of memory that all ranks share, zeroed before the first came: as this process sees it,
    /// and as its device does.
    std::byte* host_words = nullptr;
    std::byte* device_words = nullptr;
    /// Launches the kernel of Add, of which `ring` and `shares_done` are still to be filled in. The kernel needs no
    /// deadline of its own: wait() is right about who is late.
    std::function<Status(const CopyCall& call, kernels::Add add, StreamDriver::Stream stream)> launch;
    /// Whether the communicator has failed; from any thread.
    std::function<bool()> has_failed;
  };
  static Result<std::unique_ptr<PeerCopies>> open(Setup setup);
  /// Waits for this rank's streams; after a failure of the communicator that is soon.
  ~PeerCopies();
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;

  /// Chunks of a call to all peers, at most: of more the driver's queues would not hold the commands, and one thread
  /// that drives several GPUs would wait for room in one rank's before it gives the next rank's anything.
  static constexpr std::size_t most_chunks = 256;
  bool supports(const CopyCall& call) const;
  /// Whether this could be enqueued in place: of which every rank knows where all outputs are if they are at the same
  /// place on all ranks. A gather's is known to its root alone; that of a scatter's root is elsewhere if it is in
  /// place.
  bool supports_in_place(const CopyCall& call) const;
  /// Whether it would go in chunks that wait for those of others.
  bool goes_in_chunks(const CopyCall& call) const;

  /// The call must be one that is supported; `hash` is the same on all ranks that make the same call. After an error of
  /// the driver this object is of no more use, and the outputs of all that was under way are undefined.
  Status enqueue(const CopyCall& call, std::uint32_t hash, StreamDriver::Stream stream);
  /// Likewise, of a call that supports_in_place(), into the peers' outputs. `hash` tells whose they are, too. An
  /// all-to-all is in place on all ranks or on none; else they do not meet.
  Status enqueue_in_place(const CopyCall& call, const PeerAddresses& outputs, std::uint32_t hash,
                          StreamDriver::Stream stream);

  /// After a failure, from one thread, again and again: ends what this rank's streams wait for, those of calls that
  /// were enqueued or captured before included. A peer's stream that still runs may write a lower value in between.
  void release_waits();

  /// From one thread: since when nothing has moved of the call that this rank is at, and who is furthest behind.
  std::optional<Wait> wait();

 private:
  enum class Kind : std::uint8_t { contribution, message };
  using Lanes = std::vector<Lane>;
  static constexpr std::size_t grain_bytes = 4096;
  /// How a call is cut.
  struct Cut {
    std::size_t chunk_bytes = 0;
    std::uint32_t chunks = 0;        ///< of the longest message
    std::size_t messages_begin = 0;  ///< in a window; contributions come first
  };

  /// What goes straight to where it belongs.
  struct Straight {
    PeerTraffic traffic;
    PeerTraffic::Spans there;  ///< where what is sent to each peer belongs
    bool saves = false;        ///< it is written over by what comes from there
    Cut cut{};
  };

  explicit PeerCopies(Setup setup) : setup_(std::move(setup)), words_{setup_.ranks} {}
  Status prepare();
  std::size_t most_elements(const CopyCall& call) const;
  Status enqueue_part(const CopyCall& call, std::uint32_t hash, StreamDriver::Stream stream);
  static Cut cut_into(std::size_t bytes, std::size_t wanted_chunks, std::size_t largest_bytes);
  Cut cut(const PeerTraffic& traffic) const;
  Cut cut_straight(const CopyCall& call, const PeerTraffic& traffic) const;
  std::size_t message_lanes(const PeerTraffic& traffic, const Cut& cut) const;
  std::size_t message_lane(const PeerTraffic& traffic, std::uint32_t after, std::uint32_t chunk) const;
  Straight straight(const CopyCall& call, const PeerAddresses& outputs) const;
  Status save(const Straight& way, std::uint32_t after, std::uint32_t chunk);
  Status place(const Straight& way, std::uint32_t after, std::uint32_t chunk);
  Status begin(std::uint32_t hash, StreamDriver::Stream stream);
  Status fork(std::uint32_t hash, StreamDriver::Stream from, std::span<Lane* const> lanes);
  Status add(const CopyCall& call, const PeerTraffic& traffic, const Cut& cut, StreamDriver::Stream stream);
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
