#pragma once

#include "kernels/async_copy.cuh"
#include "kernels/bulk_exchange.cuh"
#include "kernels/first_push.cuh"

/// The kernel of an Exchange (launch.hpp) in bulk that consists of messages which do not depend on one another, as
/// those of a group of sends and receives: each goes on as its own peer does. A peer that makes its calls one after
/// another may take all of a message before it sends the first byte of another, or first serve a third rank.
namespace strait::kernels {

/// By the thread that looks after a peer on a lane: where its messages may be written without slots. Who receives one
/// offers that to its sender when the kernel begins, with the length, so that nobody who means another message writes
/// beyond what there is room for. In two words of the sender's arena, which else multicasts return slots by, each with
/// the lower bits of the number of the message's first slot, which both ends have alike. They are withdrawn when the
/// message has come, long before a number comes again. A rank that undoes a registration before the others looks in
/// vain for what they offer.
class Offers {
 public:
  __device__ Offers(const Ring& ring, std::uint32_t peer, std::uint32_t lane)
      : heard_(words(ring, {ring.rank, peer, Cast::multi, lane})),
        told_(words(ring, {peer, ring.rank, Cast::multi, lane})),
        peer_(peer) {}
  __device__ void make(std::uint64_t slot, std::uint64_t offer, std::size_t bytes) const {
    store_word(told_.length, slot << offer_bits | bytes);
    store_word(told_.place, slot << offer_bits | offer);
  }
  __device__ void withdraw() const {
    store_word(told_.length, 0);
    store_word(told_.place, 0);
  }
  /// 0: there is none (yet) for a message of this length.
  __device__ std::uint64_t look(std::uint64_t slot, std::size_t bytes) const {
    const std::uint64_t place = acquire_word(heard_.place);
    if (place == 0 || place >> offer_bits != (slot & 0xffff)) return 0;
    if (acquire_word(heard_.length) != (slot << offer_bits | bytes)) return 0;
    return place & ((std::uint64_t{1} << offer_bits) - 1);
  }
  /// Null: nowhere any more.
  __device__ std::byte* place_of(std::uint64_t offer, const RegisteredPlaces& registered) const {
    const std::uint64_t number = offer >> offered_distance_bits, at = number % most_registered;
    std::byte* const begin = registered.begins[at][peer_];
    if (registered.numbers[at] == 0 || (registered.numbers[at] & 0xffff) != number || begin == nullptr) return nullptr;
    const std::uint64_t granules = offer & ((std::uint64_t{1} << offered_distance_bits) - 1);
    return begin + granules * sizeof(Granule);
  }

 private:
  struct Words {
    std::uint64_t *place, *length;
  };
  static __device__ Words words(const Ring& ring, const LaneEnds& ends) {
    const auto word_of = [&](Wire wire) {
      return reinterpret_cast<std::uint64_t*>(ring.arenas[ends.writer]) +
             lane_index(wire, ends.cast, ends.reader, ends.lane);
    };
    return {word_of(Wire::bulk), word_of(Wire::lines)};
  }
  const Words heard_;  ///< what the peer offers
  const Words told_;
  const std::uint32_t peer_;
};

/// The last flag of what went without slots has this instead of the call's hash.
constexpr std::uint16_t straight_hash(std::uint16_t call_hash) { return static_cast<std::uint16_t>(call_hash + 1); }

/// Chunks of one length that follow another one at equal distances, and need neither slots nor flags.
struct Rows {
  std::uint32_t count;
  std::size_t distance_bytes;
};

struct BulkMessagesRound : BulkExchangeRound {
  Rows rows[max_width * max_ranks];  ///< behind each chunk that is sent
  std::uint32_t failed_or_ready;     ///< something moves in this round, or nothing ever will: no more waiting
};

/// What the thread that looks after a message has of it on its lane, and how far it has come.
struct Way {
  const Message& message;
  std::uint32_t lane;
  std::uint32_t round = 0;
  std::uint64_t offer = 0;      ///< of what comes; 0: none
  bool may_be_offered = false;  ///< of what is sent: that was not looked for in vain
  bool is_late = false;         ///< it was waited for in vain, and is no longer where others can go on
  std::byte* place = nullptr;   ///< of what is sent: that was offered
  std::uint64_t first_slot = 0;

  __device__ std::uint32_t next(std::size_t& offset) const { return chunk_of(message, lane, round, offset); }
  __device__ bool is_left() const {
    std::size_t offset = 0;
    return next(offset) != 0;
  }
  __device__ std::size_t round_bytes() const { return std::size_t{message.lanes} * message.chunk_bytes; }
  /// Chunks that are left behind the next one.
  __device__ std::uint32_t left_behind() const {
    const std::size_t end = (std::size_t{round} + 1) * round_bytes() + std::size_t{lane} * message.chunk_bytes;
    return end >= message.bytes ? 0 : static_cast<std::uint32_t>((message.bytes - end - 1) / round_bytes()) + 1;
  }
  /// All of it has come.
  __device__ void end() { round = static_cast<std::uint32_t>(message.bytes / message.chunk_bytes) + 1; }
};

/// How often a thread looks for what is not there yet before others go on without. A round costs some microseconds
/// besides its bytes, so that one for what is sent and what comes costs less than two; each look takes about one.
inline constexpr std::uint32_t looks_in_time = 16;
/// How often who takes something as well, as its peers may do, looks for an offer before the first chunk goes through a
/// slot: what lies there is taken when all else has been sent. Who only sends looks once, to be ahead of who receives.
inline constexpr std::uint32_t looks_for_offer = 8;

/// By each thread that looks after a peer, what it sends to it and takes from it in the coming round: of each no more
/// than a chunk, and only what can move at once. Waits until there is something in the block; false: gave up.
/// `Messages`: an Exchange, or OfferedMessages.
template <class Messages>
class NextMessages {
  static constexpr bool are_offered = std::is_same_v<Messages, OfferedMessages>;

 public:
  __device__ NextMessages(const Messages& exchange, Lane<Bulk>& lane, const Offers& offers, Way& sent, Way& taken)
      : exchange_(exchange), lane_(lane), offers_(offers), sent_(sent), taken_(taken) {
    out_bytes_ = sent.next(from_);
    in_bytes_ = taken.next(to_);
    awaits_slot_ = out_bytes_ != 0;
    awaits_chunk_ = in_bytes_ != 0;
  }
  __device__ __forceinline__ bool await(const Ring& ring, const Minder& minder, BulkMessagesRound& shared) {
    Patience patience;
    const std::uint32_t offer_looks = awaits_chunk_ ? looks_for_offer : 1;
    for (std::uint32_t looks = 0; awaits_slot_ || awaits_chunk_; ++looks) {
      // Told at once: to look for a chunk takes a microsecond.
      if (look_for_slot(minder.lane, looks + 1 < offer_looks)) store_progress(shared.failed_or_ready, 1);
      if (look_for_chunk()) store_progress(shared.failed_or_ready, 1);
      const bool is_awaited = (awaits_slot_ && !sent_.is_late) || (awaits_chunk_ && !taken_.is_late);
      if ((looks >= looks_in_time || !is_awaited) && load_progress(shared.failed_or_ready) != 0) break;
      if (patience.spent(ring, minder.peer, minder.lane, awaits_slot_)) return false;
    }
    sent_.is_late = awaits_slot_;
    taken_.is_late = awaits_chunk_;
    shared.outgoing[minder.chunk] = outgoing_;
    if constexpr (are_offered) shared.rows[minder.chunk] = rows_;
    shared.incoming[minder.chunk] = incoming_;
    return true;
  }

 private:
  /// Whether a chunk that is to be sent can move now.
  __device__ __forceinline__ bool look_for_slot(std::uint32_t lane, bool awaits_offer) {
    if (!awaits_slot_) return false;
    if constexpr (are_offered) {
      look_for_offer();
      if (sent_.may_be_offered && sent_.round == 0 && awaits_offer) return false;
    }
    const Message& message = sent_.message;
    const std::byte* const source = message.data + from_;
    if (!sends_rows(source)) {
      if (!lane_.has_slot()) return false;
      const std::uint16_t hash = sent_.place == nullptr ? message.call_hash : straight_hash(message.call_hash);
      (void)lane_.next_slot(source, out_bytes_, hash, outgoing_, lane);
      if (sent_.place != nullptr) outgoing_.slot = sent_.place + from_;
    }
    awaits_slot_ = false;
    ++sent_.round;
    return true;
  }
  __device__ __forceinline__ void look_for_offer() {
    if (!sent_.may_be_offered) return;
    const std::uint64_t offer = offers_.look(sent_.first_slot, sent_.message.bytes);
    if (offer == 0) return;
    sent_.may_be_offered = false;
    sent_.place = offers_.place_of(offer, exchange_.registered);
  }
  /// What goes to a place that was offered, all but the last chunk, which has the flag and may be shorter.
  __device__ __forceinline__ bool sends_rows(const std::byte* source) {
    if (!are_offered || sent_.place == nullptr) return false;
    const std::uint32_t left = sent_.left_behind();
    if (left == 0) return false;
    outgoing_ = {source, sent_.place + from_, nullptr, 0, out_bytes_};
    const std::uint32_t most = most_rows();
    rows_ = {left - 1 < most ? left - 1 : most, sent_.round_bytes()};
    sent_.round += rows_.count;
    return true;
  }
  /// Behind a chunk: but where what comes goes through slots, as much is taken as is sent.
  __device__ __forceinline__ std::uint32_t most_rows() const {
    return taken_.is_left() && taken_.offer == 0 ? slot_depth - 1 : ~0u;
  }
  /// Whether one has come.
  __device__ __forceinline__ bool look_for_chunk() {
    if (!awaits_chunk_) return false;
    const std::uint16_t hash = taken_.message.call_hash;
    if (lane_.has_come(hash)) {
      lane_.expect(taken_.message.data + to_, in_bytes_, hash, incoming_);
      ++taken_.round;
    } else if (are_offered && taken_.offer != 0 && lane_.has_come(straight_hash(hash))) {
      lane_.expect_slot(straight_hash(hash), incoming_);  // of which no byte is to be copied
      taken_.end();
    } else {
      return false;
    }
    if (are_offered && taken_.offer != 0 && !taken_.is_left()) offers_.withdraw();
    awaits_chunk_ = false;
    return true;
  }
  const Messages& exchange_;
  Lane<Bulk>& lane_;
  const Offers& offers_;
  Way &sent_, &taken_;
  std::size_t from_ = 0, to_ = 0;
  std::uint32_t out_bytes_, in_bytes_;
  bool awaits_slot_, awaits_chunk_;
  Outgoing outgoing_{};
  Rows rows_{};
  Incoming incoming_{};
};

/// Likewise, of what stays on this rank.
__device__ __forceinline__ void prepare_own(const Way& sent, const Minder& minder, Way& taken,
                                            BulkMessagesRound& shared) {
  std::size_t offset = 0;
  const std::uint32_t bytes = taken.next(offset);
  shared.own[minder.nth] = {sent.message.data + offset, taken.message.data + offset, bytes};
  if (bytes == 0) return;
  ++taken.round;
  store_progress(shared.failed_or_ready, 1);
}

/// By all threads of a block.
__device__ __forceinline__ void push_rows(const BulkMessagesRound& shared, std::uint32_t count, std::uint32_t pieces) {
  CopyDealer dealer(count * pieces);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Outgoing& first = shared.outgoing[i];
    const Rows rows = shared.rows[i];
    for (std::uint32_t row = 1; row <= rows.count; ++row)
      copy_by_block(dealer, first.slot + row * rows.distance_bytes, first.source + row * rows.distance_bytes,
                    first.bytes);
  }
}

template <class Messages>
__device__ __forceinline__ void run_messages(const Messages& exchange) {
  constexpr bool are_offered = std::is_same_v<Messages, OfferedMessages>;
  fetch_arguments(exchange);
  auto& shared = shared_memory<BulkMessagesRound>();
  const Ring& ring = exchange.ring;
  const std::uint32_t peers = ring.ranks - 1, width = exchange.width, pieces = exchange.pieces;
  const Minder minder(ring, width);
  const Message send = exchange.send[minder.peer], receive = exchange.receive[minder.peer];
  Way sent{send, minder.lane}, taken{receive, minder.lane};
  Lane<Bulk> lane(ring, minder.peer, Cast::single, minder.lane);
  const Offers offers(ring, minder.peer, minder.lane);
  if (minder.has_peer && minder.nth == 0) name_first(exchange, send, minder, shared);
  if (threadIdx.x == 0) shared.failed = 0;
  if (threadIdx.x == 0) store_progress(shared.failed_or_ready, 0);
  __syncthreads();
  const FirstPush<Bulk> first(shared.first, peers, pieces);
  const std::uint32_t before = begin_launch(ring);
  first.prefetch();
  taken.is_late = true;  // what has just begun has not come yet
  const auto fail = [&] {
    shared.failed = 1;
    store_progress(shared.failed_or_ready, 1);
  };
  const bool goes_on = minder.minds && lane.resume();
  if constexpr (are_offered) {
    sent.first_slot = lane.sent();
    sent.may_be_offered = minder.has_peer && send.bytes >= exchange.least_bytes;
    taken.first_slot = lane.taken();
    if (minder.has_peer && receive.bytes >= exchange.least_bytes) taken.offer = exchange.offers[minder.peer];
    if (goes_on && taken.offer != 0 && taken.is_left()) offers.make(taken.first_slot, taken.offer, receive.bytes);
  }
  mark_start(ring, before);
  if (minder.minds && !goes_on) fail();
  bool gives_up = false;
  stagger(exchange.stagger_ns);
  for (bool is_first = true, left = true; left; is_first = false) {
    const auto prepare = [&] {
      if (!minder.has_peer) return prepare_own(sent, minder, taken, shared);
      NextMessages<Messages> next(exchange, lane, offers, sent, taken);
      if (!next.await(ring, minder, shared)) fail();
      if (is_first) taken.is_late = false;
    };
    if (goes_on) out_of_line(prepare);
    __syncthreads();
    gives_up = shared.failed != 0;
    if (gives_up) break;
    const auto as_it_is = [](const Granule& value) { return value; };
    const auto take = [&] {
      take_all(ring, shared.own, shared.incoming, width, pieces);
      return true;
    };
    const auto send_chunks = [&] {
      push_all(shared.outgoing, width * peers, pieces, true, as_it_is);
      if constexpr (are_offered) push_rows(shared, width * peers, pieces);
    };
    run_round(ring, send_chunks, take, [] {});
    if (threadIdx.x == 0) store_progress(shared.failed_or_ready, 0);
    const bool is_left = minder.minds && (taken.is_left() || (minder.has_peer && sent.is_left()));
    const Notice notice(shared.outgoing, width * peers);
    left = __syncthreads_or(is_left) != 0;
    if (minder.has_peer && left) lane.give_back();
    fence_and_publish(notice);
  }
  if (minder.has_peer) lane.save(gives_up);
  tell_finished(ring);
}

/// Templates only so that a header may hold them.
template <class W = Bulk>
__global__ void __launch_bounds__(max_threads, 1) bulk_messages(const __grid_constant__ Exchange exchange) {
  run_messages(exchange);
}
template <class W = Bulk>
__global__ void __launch_bounds__(max_threads, 1) offered_messages(const __grid_constant__ OfferedMessages messages) {
  run_messages(messages);
}

}  // namespace strait::kernels
