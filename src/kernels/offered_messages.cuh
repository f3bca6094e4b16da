#pragma once

#include "kernels/bulk_messages_round.cuh"

/// Messages whose receivers offer a place (launch.hpp, OfferedMessages): what their kernel has besides
/// (bulk_messages.cuh).
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
    const auto word_of = [&](Protocol protocol) {
      return reinterpret_cast<std::uint64_t*>(ring.arenas[ends.writer]) +
             lane_index(protocol, ends.cast, ends.reader, ends.lane);
    };
    return {word_of(Protocol::bulk), word_of(Protocol::lines)};
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

struct OfferedMessagesRound : BulkMessagesRound {
  Rows rows[max_width * max_ranks];  ///< behind each chunk that is sent
};

/// What the thread that looks after a message has of it besides.
struct OfferedWay : Way {
  std::uint64_t offer = 0;      ///< of what comes; 0: none
  bool may_be_offered = false;  ///< of what is sent: that was not looked for in vain
  std::byte* place = nullptr;   ///< of what is sent: that was offered
  std::uint64_t first_slot = 0;

  /// All of it has come.
  __device__ void end(const Message& message) {
    round = static_cast<std::uint32_t>(message.bytes / message.chunk_bytes) + 1;
  }
};
constexpr std::size_t round_bytes_of(const Message& message) {
  return std::size_t{message.lanes} * message.chunk_bytes;
}

/// How often who takes something as well, as its peers may do, looks for an offer before the first chunk goes through a
/// slot: what lies there is taken when all else has been sent. Who only sends looks once, to be ahead of who receives.
inline constexpr std::uint32_t looks_for_offer = 8;

/// As prepare_messages(), and in a place that was offered as many chunks as pay.
class NextMessages {
 public:
  __device__ NextMessages(const OfferedMessages& exchange, const Message& send, const Message& receive,
                          Lane<Bulk>& lane, const Minder& minder, OfferedWay& sent, OfferedWay& taken)
      : exchange_(exchange),
        send_(send),
        receive_(receive),
        lane_(lane),
        minder_(minder),
        offers_(exchange.ring, minder.peer, minder.lane),
        sent_(sent),
        taken_(taken) {
    out_bytes_ = sent.next(send, minder.lane, from_);
    in_bytes_ = taken.next(receive, minder.lane, to_);
    awaits_slot_ = out_bytes_ != 0;
    awaits_chunk_ = in_bytes_ != 0;
  }
  __device__ __forceinline__ bool await(OfferedMessagesRound& shared) {
    Patience patience;
    const std::uint32_t offer_looks = awaits_chunk_ ? looks_for_offer : 1;
    for (std::uint32_t looks = 0; awaits_slot_ || awaits_chunk_; ++looks) {
      // Told at once: to look for a chunk takes a microsecond.
      if (look_for_slot(looks + 1 < offer_looks)) store_progress(shared.failed_or_ready, 1);
      if (look_for_chunk()) store_progress(shared.failed_or_ready, 1);
      const bool is_awaited = (awaits_slot_ && !sent_.is_late) || (awaits_chunk_ && !taken_.is_late);
      if ((looks >= looks_in_time || !is_awaited) && load_progress(shared.failed_or_ready) != 0) break;
      if (patience.spent(exchange_.ring, minder_.peer, minder_.lane, awaits_slot_)) return false;
    }
    sent_.is_late = awaits_slot_;
    taken_.is_late = awaits_chunk_;
    shared.outgoing[minder_.chunk] = outgoing_;
    shared.rows[minder_.chunk] = rows_;
    shared.incoming[minder_.chunk] = incoming_;
    return true;
  }

 private:
  /// Whether a chunk that is to be sent can move now.
  __device__ __forceinline__ bool look_for_slot(bool awaits_offer) {
    if (!awaits_slot_) return false;
    look_for_offer();
    if (sent_.may_be_offered && sent_.round == 0 && awaits_offer) return false;
    const std::byte* const source = send_.data + from_;
    if (!sends_rows(source)) {
      if (!lane_.has_slot()) return false;
      const std::uint16_t hash = sent_.place == nullptr ? send_.call_hash : straight_hash(send_.call_hash);
      (void)lane_.next_slot(source, out_bytes_, hash, outgoing_, minder_.lane);
      if (sent_.place != nullptr) outgoing_.slot = sent_.place + from_;
    }
    awaits_slot_ = false;
    ++sent_.round;
    return true;
  }
  __device__ __forceinline__ void look_for_offer() {
    if (!sent_.may_be_offered) return;
    const std::uint64_t offer = offers_.look(sent_.first_slot, send_.bytes);
    if (offer == 0) return;
    sent_.may_be_offered = false;
    sent_.place = offers_.place_of(offer, exchange_.registered);
  }
  /// What goes to a place that was offered, all but the last chunk, which has the flag and may be shorter.
  __device__ __forceinline__ bool sends_rows(const std::byte* source) {
    if (sent_.place == nullptr) return false;
    const std::uint32_t left = left_behind();
    if (left == 0) return false;
    outgoing_ = {source, sent_.place + from_, nullptr, 0, out_bytes_};
    const std::uint32_t most = most_rows();
    rows_ = {left - 1 < most ? left - 1 : most, round_bytes_of(send_)};
    sent_.round += rows_.count;
    return true;
  }
  /// Chunks behind the next one.
  __device__ __forceinline__ std::uint32_t left_behind() const {
    const std::size_t bytes = round_bytes_of(send_);
    const std::size_t end = (std::size_t{sent_.round} + 1) * bytes + std::size_t{minder_.lane} * send_.chunk_bytes;
    return end >= send_.bytes ? 0 : static_cast<std::uint32_t>((send_.bytes - end - 1) / bytes) + 1;
  }
  /// Behind a chunk: but where what comes goes through slots, as much is taken as is sent.
  __device__ __forceinline__ std::uint32_t most_rows() const {
    return taken_.is_left(receive_, minder_.lane) && taken_.offer == 0 ? slot_depth - 1 : ~0u;
  }
  /// Whether one has come.
  __device__ __forceinline__ bool look_for_chunk() {
    if (!awaits_chunk_) return false;
    const std::uint16_t hash = receive_.call_hash;
    if (lane_.has_come(hash)) {
      lane_.expect(receive_.data + to_, in_bytes_, hash, incoming_);
      ++taken_.round;
    } else if (taken_.offer != 0 && lane_.has_come(straight_hash(hash))) {
      lane_.expect_slot(straight_hash(hash), incoming_);  // of which no byte is to be copied
      taken_.end(receive_);
    } else {
      return false;
    }
    if (taken_.offer != 0 && !taken_.is_left(receive_, minder_.lane)) offers_.withdraw();
    awaits_chunk_ = false;
    return true;
  }

  const OfferedMessages& exchange_;
  const Message &send_, &receive_;
  Lane<Bulk>& lane_;
  const Minder& minder_;
  const Offers offers_;
  OfferedWay &sent_, &taken_;
  std::size_t from_ = 0, to_ = 0;
  std::uint32_t out_bytes_, in_bytes_;
  bool awaits_slot_, awaits_chunk_;
  Outgoing outgoing_{};
  Rows rows_{};
  Incoming incoming_{};
};

/// By all threads of a block.
__device__ __forceinline__ void push_rows(const OfferedMessagesRound& shared, std::uint32_t count,
                                          std::uint32_t pieces) {
  CopyDealer dealer(count * pieces);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Outgoing& first = shared.outgoing[i];
    const Rows rows = shared.rows[i];
    for (std::uint32_t row = 1; row <= rows.count; ++row)
      copy_by_block(dealer, first.slot + row * rows.distance_bytes, first.source + row * rows.distance_bytes,
                    first.bytes);
  }
}

}  // namespace strait::kernels
