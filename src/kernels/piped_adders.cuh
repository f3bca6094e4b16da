#pragma once

#include "kernels/piped.cuh"

/// The warps of a piped kernel that add up chunks (piped.cuh).
namespace strait::kernels {

template <class Memory>
__device__ __forceinline__ std::uint32_t parity_of(std::uint32_t number) {
  return number / Memory::Sets::set_count % 2;
}

/// Returns the size of one contribution in a set.
template <class Sets, class Schedule>
__device__ __forceinline__ std::uint32_t addend_bytes(const Schedule& schedule) {
  return Sets::set_bytes / __popc(schedule.contributors()) / 16 * 16;
}

/// Waits for contributions, and has them loaded into sets, part by part.
template <class Schedule, class Memory>
class Fetcher : Worker<Schedule, Memory> {
  using Base = Worker<Schedule, Memory>;
  using Base::memory_, Base::schedule_, Base::thread_, Base::ring_;
  using Sets = typename Memory::Sets;

 public:
  using Base::Base;
  __device__ void run() {
    std::uint32_t* const resulting = this->walk(Walker::resulting);
    this->for_streams([&](std::uint32_t i, const Stream& stream) { resulting[i] += this->uses_out(stream, 0); });
    bool goes_on = true;
    for (std::uint32_t round = 0; goes_on && round < schedule_.iterations(); ++round) goes_on = fetch_round(round);
    goes_on = goes_on && next_set();
    if (thread_ != 0) return;
    await_loads();
    if (!goes_on) return;
    memory_.sets.records[number_ % Sets::set_count].bytes = 0;
    arrive(memory_.sets.full[number_ % Sets::set_count]);
  }

 private:
  // Called by the whole warp. They return false if they gave up.
  /// Waits until the next set may be filled.
  __device__ bool next_set() {
    if (number_ < Sets::set_count) return true;
    return this->all(
        this->await(memory_.sets.empty[number_ % Sets::set_count], parity_of<Memory>(number_ - Sets::set_count)));
  }
  __device__ bool fetch_round(std::uint32_t round) {
    std::uint32_t* const taking = this->walk(Walker::taking);
    std::uint32_t* const resulting = this->walk(Walker::resulting);
    const bool must_wait = schedule_.overwrites_input();
    const auto is_ready = [&](std::uint32_t i, const Stream& stream) {
      const std::uint64_t in = stream.taken + taking[i];
      const std::uint64_t out = stream.sent + resulting[i] + (this->contributes(stream, round + 1) ? 1 : 0);
      const bool results = this->results(stream, round + 1);
      if (schedule_.own(stream.lane, round).bytes != 0) {
        memory_.sources[round % Memory::rounds_ahead][i] = this->in_slot(stream, in);
        memory_.results[round % Memory::rounds_ahead][i] = results ? this->out_slot(stream, out) : nullptr;
      }
      return (!this->takes(stream, round) || this->has_come(stream, in)) && (!results || this->is_free(stream, out)) &&
             (!must_wait || load_progress(memory_.sender.loaded) > this->task_of(i, round));
    };
    const auto are_peers_late = [&] { return this->has_sent(round + 1) && this->has_received(round); };
    const std::uint32_t peers = this->peers_;
    for (std::uint32_t begin = 0, end; begin < this->streams_; begin = end) {
      end = this->await(begin, peers, false, is_ready, are_peers_late, [] {}) / peers * peers;
      if (end == begin) return false;
      fence_async_global();
      for (std::uint32_t nth = begin / peers; nth < end / peers; ++nth)
        if (!fetch_chunk(round, nth)) return false;
    }
    this->for_streams([&](std::uint32_t i, const Stream& stream) {
      taking[i] += this->uses_in(stream, round);
      resulting[i] += this->uses_out(stream, round + 1);
    });
    return true;
  }
  __device__ bool fetch_chunk(std::uint32_t round, std::uint32_t nth) {
    const OwnPart own = schedule_.own(this->lane_of(nth), round);
    const std::uint32_t part = even_part(own.bytes, addend_bytes<Sets>(schedule_));
    for (std::uint32_t offset = 0; offset < own.bytes; offset += part) {
      if (!next_set()) return false;
      const std::uint32_t rest = own.bytes - offset, bytes = rest < part ? rest : part;
      const std::uint32_t task = round * schedule_.width() + nth;
      load({own.input, own.output, offset, bytes, task, rest == bytes},
           memory_.sources[round % Memory::rounds_ahead] + nth * this->peers_);
    }
    return true;
  }
  /// Waits for all loads under way. Called by one thread before the block gives up its shared memory: once another warp
  /// has given up, nobody else may be waiting for them. It is also called before the final record, which has no data:
  /// that record uses the barrier of one of these sets, which would then be one phase ahead.
  __device__ void await_loads() {
    const std::uint32_t first = number_ < Sets::set_count ? 0 : number_ - Sets::set_count;
    for (std::uint32_t number = first; number < number_; ++number)
      wait_for(memory_.sets.full[number % Sets::set_count], parity_of<Memory>(number));
  }
  /// Loads a set, with one thread for each rank's contribution. The last granule, which may be incomplete in user
  /// memory, is left to the adders.
  __device__ void load(const typename Sets::Record& record, const std::byte* const* slots) {
    const std::uint32_t at = number_++ % Sets::set_count, whole = record.bytes / 16 * 16;
    const std::uint32_t contributors = schedule_.contributors();
    if (thread_ == 0) {
      memory_.sets.records[at] = record;
      arrive_expecting(memory_.sets.full[at], whole * __popc(contributors));
    }
    const std::uint32_t rank = thread_;  // there are no more ranks than threads in a warp
    if (!has(contributors, rank) || whole == 0) return;
    const std::byte* const from = rank == ring_.rank ? record.input : slots[position_of(rank, ring_.rank, ring_.ranks)];
    const std::uint32_t before = __popc(contributors & ((1u << rank) - 1));
    load_async(memory_.sets.sets[at] + before * addend_bytes<Sets>(schedule_), from + record.offset, whole,
               memory_.sets.full[at]);
  }
  std::uint32_t number_ = 0;  ///< number of the next set
};

/// Parts of the contributions to a chunk, as they lie in a set, indexed by rank (if all ranks contribute). The last
/// granule is separate: slots contain it whole, whereas user memory may end before.
class Addends {
 public:
  __device__ Addends(const std::byte* set, std::uint32_t addend_bytes, const std::byte* own,
                     const std::byte* const* slots, std::uint32_t offset, const Ring& ring)
      : set_(set),
        addend_bytes_(addend_bytes),
        own_(own),
        slots_(slots),
        offset_(offset),
        rank_(ring.rank),
        ranks_(ring.ranks) {}
  __device__ __forceinline__ const Granule& operator()(std::uint32_t rank, std::uint32_t granule) const {
    return reinterpret_cast<const Granule*>(set_ + rank * addend_bytes_)[granule];
  }
  __device__ std::uint32_t stride_bytes() const { return addend_bytes_; }
  __device__ Granule last(std::uint32_t rank, std::uint32_t at, std::uint32_t bytes) const {
    return rank == rank_ ? OddBytes::load(own_ + offset_ + at, bytes, 1)
                         : load_plain(slots_[position_of(rank, rank_, ranks_)] + offset_ + at);
  }
  __device__ std::uint32_t ranks() const { return ranks_; }

 private:
  const std::byte* set_;
  std::uint32_t addend_bytes_;
  const std::byte* own_;
  const std::byte* const* slots_;
  std::uint32_t offset_, rank_, ranks_;
};

/// `sum(addends, to, bytes, thread, threads)` leaves the sum in the place of rank 0's contribution.
template <class Schedule, class Memory>
class Adder : Worker<Schedule, Memory> {
  using Base = Worker<Schedule, Memory>;
  using Base::memory_, Base::schedule_;
  using Sets = typename Memory::Sets;

 public:
  using Base::Base;
  /// Adds as number `thread` of `threads` threads.
  template <class Sum>
  __device__ void run(std::uint32_t thread, std::uint32_t threads, Sum&& sum) {
    for (std::uint32_t number = 0;; ++number) {
      const std::uint32_t at = number % Sets::set_count;
      if (!this->all(this->await(memory_.sets.full[at], parity_of<Memory>(number)))) return;
      const typename Sets::Record& record = memory_.sets.records[at];
      if (record.bytes == 0) return;
      const std::uint32_t round = record.task / schedule_.width(), nth = record.task % schedule_.width();
      const Addends addends(memory_.sets.sets[at], addend_bytes<Sets>(schedule_), record.input,
                            memory_.sources[round % Memory::rounds_ahead] + nth * this->peers_, record.offset,
                            this->ring_);
      sum(addends, memory_.sets.sets[at], record.bytes, thread, threads);
      fence_async_shared();
      __syncwarp();
      if (this->thread_ == 0) arrive(memory_.sets.summed[at]);
    }
  }
};

/// Sends the sums to the peers' slots and to the output. Runs in one thread.
template <class Schedule, class Memory>
class Storer : Worker<Schedule, Memory> {
  using Base = Worker<Schedule, Memory>;
  using Base::memory_, Base::schedule_;
  using Sets = typename Memory::Sets;

 public:
  __device__ Storer(const Schedule& schedule, Memory& memory)
      : Worker<Schedule, Memory>(schedule, memory), arrivals_(memory.sets.written, this->is_crowded()) {}
  __device__ void run() {
    for (;; ++number_) {
      const std::uint32_t at = number_ % Sets::set_count, parity = parity_of<Memory>(number_);
      if (!has_ended(memory_.sets.full[at], parity)) end_stores();
      if (!this->await(memory_.sets.full[at], parity)) break;
      const typename Sets::Record record = memory_.sets.records[at];
      if (record.bytes == 0) break;
      if (!this->await(memory_.sets.summed[at], parity)) break;
      store(record, memory_.sets.sets[at]);
      close_group();
      if (record.ends_task) store_progress(memory_.sets.fetched, record.task + 1);
      arrivals_.add(record.ends_task ? record.task + 1 : 0);
      wait_left<1>();
      free_until(number_);
      arrivals_.look();
    }
    end_stores();
    if (this->has_failed()) return wait_stored<0>();
    const std::uint32_t all = schedule_.iterations() * schedule_.width();
    store_progress(memory_.sets.fetched, all);
    store_progress(memory_.sets.written, all);
  }

 private:
  /// Completes the stores of all sets before this one.
  __device__ void end_stores() {
    wait_left<0>();
    free_until(number_);
    arrivals_.await_all();
  }
  /// Allows the fetcher to fill the sets before set `number`.
  __device__ void free_until(std::uint32_t number) {
    while (freed_ != number) arrive(memory_.sets.empty[freed_++ % Sets::set_count]);
  }
  __device__ void store(const typename Sets::Record& record, const std::byte* sums) {
    const std::uint32_t whole = record.bytes / 16 * 16, padded = (record.bytes + 15) / 16 * 16;
    const std::uint32_t round = record.task / schedule_.width(), nth = record.task % schedule_.width();
    for (std::uint32_t position = 0; position < this->peers_; ++position) {
      std::byte* const slot = memory_.results[round % Memory::rounds_ahead][nth * this->peers_ + position];
      if (slot != nullptr) store_async(slot + record.offset, sums, padded);
    }
    if (!schedule_.keeps()) return;
    std::byte* const output = record.output + record.offset;
    if (whole != 0) store_async(output, sums, whole);
    if (whole != record.bytes) copy_tail(sums + whole, output + whole, record.bytes - whole);
  }
  Arrivals<1> arrivals_;
  std::uint32_t number_ = 0;  ///< number of the next set
  std::uint32_t freed_ = 0;   ///< sets whose memory was given back to the fetcher
};

}  // namespace strait::kernels
