#pragma once

#include "kernels/bulk_messages_round.cuh"

/// Messages whose receivers offer a place (OfferedMessages in launch.hpp): what their kernel does in addition to
/// bulk_messages.cuh.
namespace strait::kernels {

/// The place where messages between this rank and a peer may be written without slots, for the thread that manages the
/// peer on a lane. When the kernel begins, the receiver of a message offers it to the sender, together with the length,
/// so that no sender of a different message writes beyond the available memory. Both are words in the sender's arena,
/// in the place of counters of multicast rings, which device memory does not use. Each word also contains the low bits
/// of the number of the message's first slot, which both ends know. Offers are withdrawn when the message has arrived,
/// long before these bits repeat. A rank that has undone a registration before the others does not find the place that
/// they offer.
class Offers {
 public:
  __device__ Offers(const Ring& ring, std::uint32_t peer, std::uint32_t lane)
      : peer_offer_(words(ring, {ring.rank, peer, Cast::multi, lane})),
        own_offer_(words(ring, {peer, ring.rank, Cast::multi, lane})),
        peer_(peer) {}
  __device__ void make(std::uint64_t slot, std::uint64_t offer, std::size_t bytes) const {
    store_word(own_offer_.length, slot << offer_bits | bytes);
    store_word(own_offer_.place, slot << offer_bits | offer);
  }
  __device__ void withdraw() const {
    store_word(own_offer_.length, 0);
    store_word(own_offer_.place, 0);
  }
  /// Returns the offer for a message of this length, or 0 if there is none (yet).
  __device__ std::uint64_t look(std::uint64_t slot, std::size_t bytes) const {
    const std::uint64_t place = acquire_word(peer_offer_.place);
    if (place == 0 || place >> offer_bits != (slot & 0xffff)) return 0;
    if (acquire_word(peer_offer_.length) != (slot << offer_bits | bytes)) return 0;
    return place & ((std::uint64_t{1} << offer_bits) - 1);
  }
  /// Returns the address that an offer names, or null if the registration no longer exists here.
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
  const Words peer_offer_;  ///< what the peer offers to this rank
  const Words own_offer_;
  const std::uint32_t peer_;
};

/// Returns the hash that replaces the call's hash in the last flag of data that went without slots.
constexpr std::uint16_t straight_hash(std::uint16_t call_hash) { return static_cast<std::uint16_t>(call_hash + 1); }

/// Chunks of the same length that follow another one at equal distances, and that need neither slots nor flags.
struct Rows {
  std::uint32_t count;
  std::size_t distance_bytes;
};

struct OfferedMessagesRound : BulkMessagesRound {
  Rows rows[max_width * max_ranks];  ///< that follow each chunk that is sent
};

/// What the thread that manages a message needs to know about it in addition.
struct OfferedMessageProgress : BulkMessageProgress {
  std::uint64_t offer = 0;      ///< received message: this rank's offer; 0: none
  bool may_be_offered = false;  ///< message that is sent: an offer may still arrive
  std::byte* place = nullptr;   ///< message that is sent: the place that was offered
  std::uint64_t first_slot = 0;

  /// Records that the whole message has arrived.
  __device__ void end(const Message& message) {
    round = static_cast<std::uint32_t>(message.bytes / message.chunk_bytes) + 1;
  }
};
constexpr std::size_t round_bytes_of(const Message& message) {
  return std::size_t{message.lanes} * message.chunk_bytes;
}

/// How often a rank that also receives, as its peers may, looks for an offer before it sends the first chunk through a
/// slot: a chunk in a slot is received only after everything else has been sent. A rank that only sends looks once, so
/// that it stays ahead of the receiver.
inline constexpr std::uint32_t looks_for_offer = 8;

/// As prepare_messages(). In addition, as many chunks as pay are written to a place that was offered.
class NextMessages {
 public:
  __device__ NextMessages(const OfferedMessages& exchange, const Message& send, const Message& receive,
                          Lane<Bulk>& lane, const LaneManager& manager, OfferedMessageProgress& sent,
                          OfferedMessageProgress& taken)
      : exchange_(exchange),
        send_(send),
        receive_(receive),
        lane_(lane),
        manager_(manager),
        offers_(exchange.ring, manager.peer, manager.lane),
        sent_(sent),
        taken_(taken) {
    out_bytes_ = sent.next(send, manager.lane, from_);
    in_bytes_ = taken.next(receive, manager.lane, to_);
    awaits_slot_ = out_bytes_ != 0;
    awaits_chunk_ = in_bytes_ != 0;
  }
  __device__ __forceinline__ bool await(OfferedMessagesRound& shared) {
    PollMonitor monitor;
    const std::uint32_t offer_looks = awaits_chunk_ ? looks_for_offer : 1;
    for (std::uint32_t looks = 0; awaits_slot_ || awaits_chunk_; ++looks) {
      // Progress is reported at once, because looking for a chunk takes a microsecond.
      if (look_for_slot(looks + 1 < offer_looks)) store_progress(shared.failed_or_ready, 1);
      if (look_for_chunk()) store_progress(shared.failed_or_ready, 1);
      const bool is_awaited = (awaits_slot_ && !sent_.is_late) || (awaits_chunk_ && !taken_.is_late);
      if ((looks >= looks_in_time || !is_awaited) && load_progress(shared.failed_or_ready) != 0) break;
      if (monitor.must_give_up(exchange_.ring, manager_.peer, manager_.lane, awaits_slot_)) return false;
    }
    sent_.is_late = awaits_slot_;
    taken_.is_late = awaits_chunk_;
    shared.outgoing[manager_.chunk] = outgoing_;
    shared.rows[manager_.chunk] = rows_;
    shared.incoming[manager_.chunk] = incoming_;
    return true;
  }

 private:
  /// Returns whether a chunk that is to be sent can move now.
  __device__ __forceinline__ bool look_for_slot(bool awaits_offer) {
    if (!awaits_slot_) return false;
    look_for_offer();
    if (sent_.may_be_offered && sent_.round == 0 && awaits_offer) return false;
    const std::byte* const source = send_.data + from_;
    if (!sends_rows(source)) {
      if (!lane_.has_slot()) return false;
      const std::uint16_t hash = sent_.place == nullptr ? send_.call_hash : straight_hash(send_.call_hash);
      (void)lane_.next_slot(source, out_bytes_, hash, outgoing_, manager_.lane);
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
  /// Sets what is written to an offered place: all chunks except the last, which has the flag and may be shorter.
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
  /// Returns the number of chunks behind the next one.
  __device__ __forceinline__ std::uint32_t left_behind() const {
    const std::size_t bytes = round_bytes_of(send_);
    const std::size_t end = (std::size_t{sent_.round} + 1) * bytes + std::size_t{manager_.lane} * send_.chunk_bytes;
    return end >= send_.bytes ? 0 : static_cast<std::uint32_t>((send_.bytes - end - 1) / bytes) + 1;
  }
  /// Returns how many chunks may follow a chunk in one round. If data arrives through slots, a round sends only as much
  /// as it receives.
  __device__ __forceinline__ std::uint32_t most_rows() const {
    return taken_.is_left(receive_, manager_.lane) && taken_.offer == 0 ? slot_depth - 1 : ~0u;
  }
  /// Returns whether a chunk has arrived.
  __device__ __forceinline__ bool look_for_chunk() {
    if (!awaits_chunk_) return false;
    const std::uint16_t hash = receive_.call_hash;
    if (lane_.has_come(hash)) {
      lane_.expect(receive_.data + to_, in_bytes_, hash, incoming_);
      ++taken_.round;
    } else if (taken_.offer != 0 && lane_.has_come(straight_hash(hash))) {
      lane_.expect_slot(straight_hash(hash), incoming_);  // no byte of it is to be copied
      taken_.end(receive_);
    } else {
      return false;
    }
    if (taken_.offer != 0 && !taken_.is_left(receive_, manager_.lane)) offers_.withdraw();
    awaits_chunk_ = false;
    return true;
  }

  const OfferedMessages& exchange_;
  const Message &send_, &receive_;
  Lane<Bulk>& lane_;
  const LaneManager& manager_;
  const Offers offers_;
  OfferedMessageProgress &sent_, &taken_;
  std::size_t from_ = 0, to_ = 0;
  std::uint32_t out_bytes_, in_bytes_;
  bool awaits_slot_, awaits_chunk_;
  Outgoing outgoing_{};
  Rows rows_{};
  Incoming incoming_{};
};

/// Writes the chunks that follow each chunk. Called by all threads of a block.
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
