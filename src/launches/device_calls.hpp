#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "calls/call.hpp"
#include "calls/hops.hpp"
#include "kernels/cut.hpp"
#include "kernels/launch.hpp"
#include "select/borders.hpp"

namespace strait {

/// What receivers of messages may offer (kernels::OfferedMessages).
struct MessageOffers {
  std::function<std::uint64_t(const void* data, std::size_t bytes)> of;  ///< 0: no place; empty: there never was any
  const kernels::RegisteredPlaces* registered = nullptr;
};

/// One launch: which kernel, its argument, and its shape.
struct DeviceLaunch {
  kernels::Protocol protocol = kernels::Protocol::lines;
  bool reduces = false;
  std::variant<kernels::Exchange, kernels::TwoHop, kernels::EncodedExchange, kernels::EncodedTwoHop,
               kernels::StraightExchange, kernels::OfferedMessages>
      argument;
  std::uint32_t blocks = 0;
  std::uint32_t threads = 0;  ///< of a block
  bool piped = false;         ///< kernels/piped.cuh
  bool prompt = false;        ///< kernels/prompt.cuh
  bool apart = false;         ///< its messages do not wait for one another (kernels::exchange_copy_kernel())
  std::uint32_t turn = 0;     ///< of messages: their place in the order of turns (DeviceCalls::Turn)
  WireFormat encoding = WireFormat::off;  ///< of an EncodedExchange or an EncodedTwoHop
};

/// Messages to, or from, some ranks: they lie at equal distances.
struct MessageRow {
  std::byte* first = nullptr;  ///< where that of rank 0 is or would be
  std::size_t stride_bytes = 0;
  std::uint32_t ranks = 0;  ///< bit r: rank r has one

  bool has(std::uint32_t rank) const { return (ranks >> rank & 1) != 0; }
  std::byte* at(std::uint32_t rank) const { return first + rank * stride_bytes; }
};
struct MessageRows {
  std::size_t bytes = 0;  ///< of each message
  MessageRow send, receive;
  std::size_t whole_bytes = 0;  ///< not 0: they are slices of so many bytes, of which the last ones are shorter
};

/// How GPU ranks carry calls out: a pure function of the call and of what all ranks know alike, so that both ends of
/// every message cut it alike and use the same protocol.
class DeviceCalls {
 public:
  /// Thread blocks of large calls: more make them hardly faster. What is bound to less has few.
  static constexpr std::uint32_t large_call_blocks = 64;
  struct Options {
    std::uint32_t max_sms = 0;  ///< thread blocks at most, or no_sms, of calls that say nothing else; 0: as many as pay
    /// Messages up to this bear flags with their data: packets or lines; else bulk. Packets, unset: by their border.
    std::optional<std::size_t> flagged_bytes;
    Hops hops = Hops::chosen;                   ///< forced where it can be, of calls that name no algorithm
    std::size_t piped_bytes = ~std::size_t{0};  ///< messages in bulk from this on go through pipes, where they can
    double exchange_gbps = 0;                   ///< ExchangeRates, by which borders are; 0: unknown
    std::uint32_t most_blocks = 0;              ///< of a launch, whatever is asked for; 0: no such bound
    std::uint32_t sms = 0;                      ///< of the smallest GPU; 0: unknown
    std::size_t least_offered_bytes = 0;        ///< of messages whose receivers offer a place; 0: as pays
  };
  using Offers = MessageOffers;
  DeviceCalls() = default;
  /// `barrier_tokens`: 2 * max_ranks words of this device's memory.
  DeviceCalls(const kernels::Ring& ring, std::byte* barrier_tokens, Options options)
      : ring_(ring),
        barrier_tokens_(barrier_tokens),
        options_(options),
        borders_(borders_of(kernels::kind_of(ring), ring.ranks, options_.exchange_gbps)),
        least_offered_bytes_(options_.least_offered_bytes != 0 ? options_.least_offered_bytes
                                                               : least_offered_bytes(ring.ranks)),
        flagged_bytes_(options_.flagged_bytes.value_or(borders_.packets_bytes)),
        lone_flagged_bytes_(flagged_bytes_),
        gathered_flagged_bytes_(flagged_bytes_) {
    if (options_.flagged_bytes || !ring.staged) return;  // not measured where packets go to peers
    lone_flagged_bytes_ = flagged_bytes_ * (std::max(ring.ranks, 2u) - 1) * 2 / 3;
    gathered_flagged_bytes_ = flagged_bytes_ / 2;
  }

  /// Shorter messages are no slower through slots, which pairs have more of (two and four H200).
  static constexpr std::size_t least_offered_bytes(std::uint32_t ranks) {
    return std::size_t{ranks == 2 ? 256u : 32u} << 20;
  }

  /// Nothing where this rank has nothing to do. `offers`: of a call that is made of messages, as of a group of them.
  std::vector<DeviceLaunch> launches_of(const Call& call, const Offers& offers = {}) const;
  /// Of a call in a wire format (is_encoded()): whether it pays to encode it on the way, and its launches then.
  bool pays_to_encode(const Call& call) const;
  /// Of the larger buffer: from there on it does.
  std::size_t encoded_bytes() const { return borders_.encoded_bytes; }
  std::vector<DeviceLaunch> encoded_launches_of(const Call& call) const;
  /// Whether a call goes straight into the outputs of peers, if all ranks have registered theirs; all decide alike.
  bool goes_straight(const Call& call) const;
  /// `outputs`: by rank, as this device addresses them. `hash`: of the call and of where outputs are.
  DeviceLaunch straight_launch_of(const Call& call, const std::array<std::byte*, kernels::max_ranks>& outputs,
                                  std::uint16_t hash) const;
  /// Whether the root's own part of a broadcast is left to a plain copy from `send` to `receive` beside its `launches`:
  /// of a long one in two hops that is not piped. Else kernels copy it.
  bool leaves_own(const Call& call, const std::vector<DeviceLaunch>& launches) const;
  /// A reduction over a GPU's ring with the CPU threads that reduce (cpu_reducers::ReducerMemory). Of a call with a
  /// wire format the bytes are encoded already.
  DeviceLaunch launch_to_reducers(const Call& call) const;
  /// Through what a collective goes in one hop, or an all-reduce in each of two, if it may go along with others of its
  /// group (aggregates.hpp).
  std::optional<kernels::Slots> aggregable_slots(const Call& call) const;
  /// Of such a call, each of its messages.
  std::size_t aggregable_bytes(const Call& call) const;
  /// What `calls` of a group go through in the place of `through`, if there is so much of them that bytes count more
  /// than what a message costs apart from them, and bulk has a block for each.
  std::optional<kernels::Slots> bulk_instead(const Call& call, const kernels::Slots& through, std::size_t calls,
                                             std::size_t group_bytes) const;
  /// In one hop, the messages of a call that has one length for all.
  MessageRows rows_of(const Call& call) const;
  /// Of an all-reduce in two hops, those of the first one: every rank's slices for their owners.
  bool takes_two_hops(const Call& call) const {
    return call.collective == Collective::all_reduce && !takes_one_hop(call, call.count * size_bytes(call.type));
  }
  MessageRows rows_of_sums(const Call& call) const;
  /// Whether they go to all peers at once.
  kernels::Cast cast_of(const Call& call) const;
  /// Sends and receives of one group.
  std::vector<DeviceLaunch> launches_of(std::span<const Call> messages, const Offers& offers = {}) const;
  /// Of a rank that has no part in a call: it only counts it.
  DeviceLaunch launch_of_nothing() const {
    kernels::Exchange exchange{};
    exchange.ring = ring_;
    exchange.width = 1;
    return {kernels::flagged_protocol(ring_), false, exchange, 1, kernels::threads_for(0, ring_.ranks, 1)};
  }
  const kernels::Ring& ring() const { return ring_; }

 private:
  /// In which launch an end of a message is, where messages differ in length and only its two ranks know how long it
  /// is: which of those from the one to the other it is, and of these first what is sent of the short ones, which fit
  /// into free slots, then the long ones, then what is received of the short ones. (Where none is long, short ones are
  /// sent and received in one launch.)
  ///
  /// Every rank launches in the order of turns, so that ranks never wait for one another in a circle: take the first
  /// turn that is not over everywhere. A rank with an end in it has ended all that it launches before. Short messages
  /// find free slots, for those of the turns before were received; both ends of long ones run; and short ones that are
  /// received have been sent. So it ends, whichever turns other ranks have.
  ///
  /// Nor does it matter to the order of launches which ranks post as a group what others post one by one, if there is
  /// one message from a rank to another: nobody waits for a rank that has yet to receive a short one, and what a
  /// launch has together does not wait for one another (DeviceLaunch::apart; in pipes, only what is sent for what
  /// comes).
  enum class Part : std::uint8_t { short_sends, long_ones, short_receives };
  struct Turn {
    std::uint32_t number;
    Part part;
    bool operator<(const Turn& other) const { return place() < other.place(); }
    /// Among all: of each number there are three.
    std::uint32_t place() const { return number * 3 + static_cast<std::uint32_t>(part); }
  };
  struct Ends {
    kernels::Exchange exchange{};
    bool piped = true;                              ///< all of them
    bool may_be_offered = false;                    ///< some of them
    std::uint64_t offers[kernels::max_ranks] = {};  ///< OfferedMessages
  };
  /// Packets carry a third of the data's bytes as flags, and spare a fence: that is for one call, and goes on being
  /// worth it up to so many times their border in a group, whose calls do not wait for one another.
  static constexpr std::size_t packets_of_a_group = 2;
  using Turns = std::map<Turn, Ends>;
  /// One end of a message.
  struct End {
    bool sends;
    std::uint32_t peer;
    const void* data;
    std::size_t count;
  };

  /// Thread blocks at most; 0: as many as pay.
  std::uint32_t bound(const Call& call) const {
    const std::uint32_t max_sms = call.max_sms != 0 ? call.max_sms : options_.max_sms;
    const std::uint32_t asked = blocks_of(max_sms, is_reduction(call.collective));
    if (asked == 0) return options_.most_blocks;
    return at_once(options_.most_blocks == 0 ? asked : std::min(asked, options_.most_blocks));
  }
  /// Thread blocks at most, where none are named as many as pay.
  std::uint32_t blocks_for(const Call& call) const { return bound(call) != 0 ? bound(call) : at_once(borders_.blocks); }
  /// Whether the user has asked for few.
  bool has_few_blocks(const Call& call) const { return bound(call) != 0 && bound(call) < large_call_blocks; }
  /// Of so many blocks, those that every GPU has an SM for. Each waits for one on every other GPU, so that those of a
  /// second wave would only begin when the first ones have ended.
  std::uint32_t at_once(std::uint32_t blocks) const {
    return options_.sms != 0 ? std::min(blocks, options_.sms) : blocks;
  }
  kernels::Slots slots(const Call& call, kernels::Protocol protocol, std::size_t message_bytes = 0) const;
  bool is_long_through_host(std::size_t message_bytes) const;
  static std::uint32_t most_lanes(Collective collective);
  /// Whether all ranks send and take as much.
  static bool has_equal_parts(Collective collective);
  kernels::Slots slots_for(const Call& call, bool one_hop, std::size_t message_bytes) const;
  kernels::Slots protocol_for(const Call& call, bool one_hop, std::size_t message_bytes) const;
  std::uint32_t host_stagger_ns(kernels::Protocol protocol, std::size_t bytes) const;
  std::uint32_t host_stagger_ns(const Call& call, bool one_hop, const kernels::Slots& through) const;
  std::uint32_t host_stagger_ns(const kernels::Exchange& messages, kernels::Protocol protocol) const;
  std::uint32_t rounds_for(const Call& call, bool one_hop, const kernels::Slots& through,
                           std::size_t message_bytes) const;
  bool takes_many(const Call& call) const;
  bool is_piped(const Call& call, bool one_hop, std::size_t message_bytes) const;
  /// Whether each of two ranks adds up half of an all-reduce, and not all of it.
  bool halves_sums(const Call& call, std::size_t bytes) const;
  std::uint32_t piped_blocks(const Call& call, bool one_hop, std::size_t message_bytes) const;
  kernels::Slots piped_slots(const Call& call, bool one_hop, std::size_t message_bytes) const;
  bool takes_one_hop(const Call& call, std::size_t bytes) const;
  /// That of a new launch, among these ranks. Exchanges are made where they stay: they are long, and copies of them
  /// cost most of a call.
  kernels::Exchange& exchange_in(DeviceLaunch& launch) const;
  /// `length`: of a message, as `through` counts.
  void fill_in(kernels::Exchange& exchange, const Call& call, const kernels::Slots& through, std::size_t length) const;
  void add_end(const Call& call, const End& end, const Offers& offers, std::uint32_t number, Turns& turns) const;
  /// `at_once`: all ranks are sure to make the same launches at the same time.
  std::vector<DeviceLaunch> launches_of(Turns turns, const Offers& offers, bool at_once) const;
  std::vector<DeviceLaunch> all_to_all_v(const Call& call, const Offers& offers) const;
  void place_blocks(kernels::Exchange& exchange, const Call& call, kernels::Cutter& part) const;
  /// `length`: of the buffer, and `slice` of the owners' slices, as `through` counts.
  kernels::TwoHop two_hop_of(const Call& call, const kernels::Slots& through, std::size_t length,
                             std::size_t slice) const;
  kernels::Slots encoded_slots(const Call& call, bool one_hop, std::size_t elements) const;
  DeviceLaunch launch_of(const kernels::TwoHop& two_hop, const kernels::Slots& through, bool reduces) const;
  /// Of the last one, whose exchange is filled in: all else. Takes it away if it would move nothing.
  void shape_last(const kernels::Slots& through, bool reduces, std::vector<DeviceLaunch>& launches) const;

  kernels::Ring ring_{};
  std::byte* barrier_tokens_ = nullptr;
  Options options_;
  Borders borders_;
  std::size_t least_offered_bytes_ = 0;
  /// The second: where a rank takes one message, not one of each. The third: where one takes all, and sends nothing.
  std::size_t flagged_bytes_ = 0, lone_flagged_bytes_ = 0, gathered_flagged_bytes_ = 0;
};

}  // namespace strait
