#pragma once

#include "kernels/granules.cuh"
#include "kernels/pipe.cuh"
#include "kernels/schedule.cuh"

/// Bulk, with a separate task for every warp, so that no wait of one warp stops the work of another:
///  - The sender carries contributions into the peers' slots; the receiver carries results from this rank's slots to
///    where they belong.
///  - The fetcher waits for what this rank adds up and has it loaded, the adders add, and the storer sends the results.
///  - The flag publisher publishes what has arrived; the returner returns slots.
/// The other end sees slots, flags and counters as those of any bulk kernel. A Schedule (schedule.cuh) says what is
/// moved.
namespace strait::kernels {

inline constexpr std::uint32_t max_streams = max_width * (max_ranks - 1);

/// From this number of blocks on, among more than two ranks, all blocks wait for slots: the sooner peers hear of a
/// piece, the sooner its slot is free again. In other cases it is better that a block has more pieces on their way (2
/// and 4 H200).
#ifndef STRAIT_EMULATED_GPU
inline constexpr std::uint32_t least_crowded_blocks = 24;
#else
inline constexpr std::uint32_t least_crowded_blocks = 2;  // tests have one or two blocks
#endif

/// One peer on one of the block's lanes.
struct Stream {
  std::byte* out_slots;
  const std::byte* in_slots;
  std::uint64_t* out_flags;
  const std::uint64_t* in_flags;
  const std::uint64_t* returned;  ///< counter of this rank's slots, which the peer advances
  std::uint64_t* peers_returned;  ///< counter of the peer's slots, which this rank advances
  LaneCounts* counts;
  std::uint64_t sent, taken;  ///< counts at the beginning of the launch
  std::uint64_t returned_by_us;
  std::uint32_t peer, lane;
  std::uint16_t hash_to, hash_from;
};

/// A chunk to be copied. `bytes` == 0: none.
struct Transfer {
  const std::byte* from;
  std::byte* to;
  std::uint32_t bytes;
};

/// Sets of contributions that are added up part by part. Tasks are this rank's own chunks, numbered round * width +
/// nth.
template <std::uint32_t sets_, std::uint32_t bytes_>
struct SetsMemory {
  static constexpr std::uint32_t set_count = sets_, set_bytes = bytes_;
  struct Record {
    const std::byte* input;  ///< this rank's own chunk
    std::byte* output;
    std::uint32_t offset;  ///< of the part in the chunk
    std::uint32_t bytes;   ///< 0: no more parts follow
    std::uint32_t task;
    bool ends_task;
  };
  alignas(128) std::byte sets[set_count][set_bytes];
  Barrier full[set_count], summed[set_count], empty[set_count];
  Record records[set_count];
  std::uint32_t fetched, written;  ///< tasks whose contributions have been read, and tasks whose sums have been stored
};

/// Warps that go through the iterations. The first stream_walkers of them, which belong to the flag publisher and the
/// returner, do so separately for each stream.
enum class Walker : std::uint32_t { contributed, results, returns, sender, receiver, taking, resulting, count };
inline constexpr std::uint32_t stream_walkers = 3;

/// What the warps of a block share.
template <class SenderPipe, class ReceiverPipe, class SetsOf>
struct PipedMemory {
  using Sets = SetsOf;
  /// Limit of the rounds that the fetcher may have begun, or is about to begin, while the storer has not stored the
  /// first of them.
  static constexpr std::uint32_t rounds_ahead = Sets::set_count + 1;
  SenderPipe sender;
  ReceiverPipe receiver;
  Sets sets;
  Stream streams[max_streams];
  Transfer sent[max_streams], received[max_streams];
  /// Addresses of the contributions to this rank's own chunk, and of the slots for its sum. They are written only in
  /// rounds that have such a chunk: rounds without one take no set, so nothing limits how far they run ahead.
  const std::byte* sources[rounds_ahead][max_streams];
  std::byte* results[rounds_ahead][max_streams];
  /// Slots that each stream has used in the iterations that a walker has completed.
  std::uint32_t walks[static_cast<std::uint32_t>(Walker::count)][max_streams];
  std::uint32_t iterations[stream_walkers][max_streams];  ///< iterations that each walker has completed
  std::uint32_t failed;
};

/// What all warps need.
template <class Schedule, class Memory>
class Worker {
 public:
  __device__ Worker(const Schedule& schedule, Memory& memory)
      : schedule_(schedule),
        memory_(memory),
        ring_(schedule.ring()),
        peers_(ring_.ranks - 1),
        streams_(peers_ * schedule.width()),
        slot_bytes_(ring_.slots[static_cast<std::uint32_t>(Protocol::bulk)].slot_bytes),
        thread_(threadIdx.x % warp_threads) {}

 protected:
  __device__ std::uint32_t lane_of(std::uint32_t nth) const { return blockIdx.x + nth * gridDim.x; }
  /// What the sender or the receiver does for one stream in one iteration is a task.
  __device__ std::uint32_t task_of(std::uint32_t stream, std::uint32_t iteration) const {
    return iteration * streams_ + stream;
  }
  __device__ std::uint32_t* walk(Walker walker) { return memory_.walks[static_cast<std::uint32_t>(walker)]; }
  template <class Body>
  __device__ void for_streams(Body&& body) {
    for (std::uint32_t i = thread_; i < streams_; i += warp_threads) body(i, memory_.streams[i]);
  }
  __device__ bool has_failed() const { return load_progress(memory_.failed) != 0; }
  __device__ void fail() { store_progress(memory_.failed, 1); }

  __device__ bool is_crowded() const { return peers_ > 1 && gridDim.x >= least_crowded_blocks; }

  // Whether the sender, the fetcher or the receiver has completed this many iterations. While these warps wait, a wait
  // is attributed to a peer only if it belongs to the lowest iteration, and there to the first of these warps. The
  // other waits may be consequences of that one, because peers wait for one another. So one of the warps always watches
  // the clock.
  __device__ bool has_sent(std::uint32_t iterations) const {
    return load_progress(memory_.sender.loaded) >= iterations * streams_;
  }
  __device__ bool has_fetched(std::uint32_t iterations) const {
    return load_progress(memory_.sets.fetched) >= iterations * schedule_.width();
  }
  __device__ bool has_received(std::uint32_t iterations) const {
    return load_progress(memory_.receiver.loaded) >= iterations * streams_;
  }

  /// Waits until all streams from `first` on to some later one, at least `least` of them, are ready, and returns the
  /// end of that range. Called by a whole warp. Before it waits, its first thread calls flush() to complete what is
  /// under way, because others may wait for that. Returns `first` if it gave up. `are_peers_late()` returns whether the
  /// block waits for the peers of these streams.
  template <class Ready, class Late, class Flush>
  __device__ std::uint32_t await(std::uint32_t first, std::uint32_t least, bool sends, Ready&& is_ready,
                                 Late&& are_peers_late, Flush&& flush) {
    PollMonitor monitor;
    for (bool waits = false;; waits = true) {
      std::uint32_t missing = streams_;
      for_streams([&](std::uint32_t i, const Stream& stream) {
        if (i >= first && missing == streams_ && !is_ready(i, stream)) missing = i;
      });
      const std::uint32_t end = smallest(missing);
      if (end >= first + least) {
        __syncwarp();  // the first thread sees what the other threads did and saw
        return end;
      }
      if (!waits && thread_ == 0) flush();
      if (missing != streams_) {
        const Stream& stream = memory_.streams[missing];
        if (monitor.must_give_up(ring_, stream.peer, stream.lane, sends, are_peers_late)) fail();
      }
      if (!all(!has_failed())) return first;
      pause();
    }
  }
  /// Puts into the pipe what the streams in [begin, end) move in an iteration. Called by one thread. A stream that
  /// moves nothing is reported as done together with the stream before it.
  template <class P>
  __device__ void carry(P& pipe, const Transfer* transfers, std::uint32_t begin, std::uint32_t end,
                        std::uint32_t iteration) {
    for (std::uint32_t i = begin; i < end;) {
      const Transfer& each = transfers[i];
      do ++i;
      while (i < end && transfers[i].bytes == 0);
      pipe.put(each.from, each.to, each.bytes, task_of(i, iteration));
    }
  }
  static __device__ std::uint32_t smallest(std::uint32_t value) {
#pragma unroll
    for (int apart = 1; apart < static_cast<int>(warp_threads); apart *= 2) {
      const std::uint32_t other = __shfl_xor_sync(0xffffffffu, value, apart);
      value = other < value ? other : value;
    }
    return value;
  }
  static __device__ bool all(bool yes) { return __any_sync(0xffffffffu, !yes) == 0; }
  /// Waits for the end of a phase. Returns false if another warp gave up.
  __device__ bool await(Barrier& barrier, std::uint32_t parity) {
    while (!has_ended(barrier, parity))
      if (has_failed()) return false;
    return true;
  }
  __device__ bool is_free(const Stream& stream, std::uint64_t use) const {
    return use < acquire_word(stream.returned) + slot_depth;
  }
  __device__ bool has_come(const Stream& stream, std::uint64_t use) const {
    return acquire_word(stream.in_flags + use % slot_depth) == Bulk::flag(use, stream.hash_from);
  }
  __device__ std::byte* out_slot(const Stream& stream, std::uint64_t use) const {
    return stream.out_slots + use % slot_depth * slot_bytes_;
  }
  __device__ const std::byte* in_slot(const Stream& stream, std::uint64_t use) const {
    return stream.in_slots + use % slot_depth * slot_bytes_;
  }

  // For walkers that go through the iterations separately for each stream.
  __device__ std::uint32_t& iteration_of(Walker walker, std::uint32_t i) {
    return memory_.iterations[static_cast<std::uint32_t>(walker)][i];
  }
  __device__ bool is_left(Walker walker, std::uint32_t i) { return iteration_of(walker, i) < schedule_.iterations(); }
  /// Returns whether the storer or the fetcher has completed a round of this rank's own part on the stream's lane, if
  /// it has completed `tasks` tasks.
  __device__ bool is_through(std::uint32_t tasks, std::uint32_t i, std::uint32_t round) const {
    return round * schedule_.width() + i / peers_ < tasks;
  }

  // Which slots a stream uses in an iteration.
  __device__ bool contributes(const Stream& stream, std::uint32_t iteration) const {
    return schedule_.contribution_to(stream.peer, stream.lane, iteration).bytes != 0;
  }
  __device__ bool results(const Stream& stream, std::uint32_t iteration) const {
    return schedule_.result_to(stream.peer, stream.lane, iteration) != 0;
  }
  __device__ bool takes(const Stream& stream, std::uint32_t iteration) const {
    return schedule_.contribution_from(stream.peer, stream.lane, iteration) != 0;
  }
  __device__ std::uint32_t uses_out(const Stream& stream, std::uint32_t iteration) const {
    return (contributes(stream, iteration) ? 1 : 0) + (results(stream, iteration) ? 1 : 0);
  }
  __device__ std::uint32_t uses_in(const Stream& stream, std::uint32_t iteration) const {
    return (takes(stream, iteration) ? 1 : 0) +
           (schedule_.result_from(stream.peer, stream.lane, iteration).bytes != 0 ? 1 : 0);
  }

  const Schedule& schedule_;
  Memory& memory_;
  const Ring& ring_;
  const std::uint32_t peers_, streams_, slot_bytes_;
  const std::uint32_t thread_;  ///< number of the thread in its warp
};

}  // namespace strait::kernels
