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

/// Access to the memory that receivers of messages may offer to their senders (kernels::OfferedMessages).
struct MessageOffers {
  /// Returns the offer for a buffer (kernels::offer_of()), or 0 if it cannot be offered. Empty if no memory was ever
  /// registered.
  std::function<std::uint64_t(const void* data, std::size_t bytes)> of;
  const kernels::RegisteredPlaces* registered = nullptr;
};

/// One launch: the kernel, its argument, and its shape.
struct DeviceLaunch {
  kernels::Protocol protocol = kernels::Protocol::lines;
  bool reduces = false;
  std::variant<kernels::Exchange, kernels::TwoHop, kernels::EncodedExchange, kernels::EncodedTwoHop,
               kernels::StraightExchange, kernels::OfferedMessages>
      argument;
  std::uint32_t blocks = 0;
  std::uint32_t threads = 0;  ///< threads of a block
  bool piped = false;         ///< uses a piped kernel (kernels/piped.cuh)
  bool prompt = false;        ///< uses a prompt kernel (kernels/prompt.cuh)
  /// Its messages do not wait for one another (kernels::exchange_copy_kernel()).
  bool independent = false;
  std::uint32_t turn = 0;                 ///< of messages: DeviceCalls::Turn::place()
  WireFormat encoding = WireFormat::off;  ///< wire format of an EncodedExchange or an EncodedTwoHop
};

/// Messages of equal length to, or from, some ranks, at equal distances in memory.
struct MessageRow {
  std::byte* first = nullptr;  ///< address of the message of rank 0, whether or not there is one
  std::size_t stride_bytes = 0;
  std::uint32_t ranks = 0;  ///< bit r is set if rank r has a message

  bool has(std::uint32_t rank) const { return (ranks >> rank & 1) != 0; }
  std::byte* at(std::uint32_t rank) const { return first + rank * stride_bytes; }
};
struct MessageRows {
  std::size_t bytes = 0;  ///< length of each message
  MessageRow send, receive;
  /// If not 0: the messages are slices of a buffer of this length, and the last slices are shorter.
  std::size_t whole_bytes = 0;
};

/// Determines how GPU ranks carry out calls. A pure function of the call and of what all ranks know alike, so that both
/// ends of every message cut it alike and use the same protocol.
class DeviceCalls {
 public:
  /// Thread blocks of large calls; more hardly make them faster. A call with a lower limit counts as having few blocks.
  static constexpr std::uint32_t large_call_blocks = 64;
  struct Options {
    /// Limit of the thread blocks of calls that have no limit of their own, or no_sms; 0: as many as pay.
    std::uint32_t max_sms = 0;
    /// Messages up to this length carry flags with their data (lines or packets); longer ones go in bulk. If unset, for
    /// packets: the border of packets.
    std::optional<std::size_t> flagged_bytes;
    /// The number of hops, where both are possible, of calls that name no algorithm.
    Hops hops = Hops::chosen;
    /// Unit of the lengths from which messages in bulk go through pipes (STRAIT_PIPED_BYTES); 0: everything that can.
    std::size_t piped_unit_bytes = ~std::size_t{0};
    double exchange_gbps = 0;       ///< the rate from ExchangeRates that determines the borders; 0: unknown
    std::uint32_t most_blocks = 0;  ///< limit of the blocks of a launch, whatever is asked for; 0: none
    std::uint32_t sms = 0;          ///< SMs of the smallest GPU; 0: unknown
    /// Length of the shortest messages whose receivers offer a place; 0: where it pays.
    std::size_t least_offered_bytes = 0;
  };
  DeviceCalls() = default;
  /// `barrier_tokens`: 2 * max_ranks words of 8 bytes in this device's memory.
  DeviceCalls(const kernels::Ring& ring, std::byte* barrier_tokens, Options options)
      : ring_(ring),
        barrier_tokens_(barrier_tokens),
        options_(options),
        borders_(borders_of(kernels::kind_of(ring), ring.ranks, options_.exchange_gbps)),
        least_offered_bytes_(options_.least_offered_bytes != 0 ? options_.least_offered_bytes
                                                               : least_offered_bytes(ring.ranks)),
        flagged_bytes_(options_.flagged_bytes.value_or(borders_.packets_bytes)),
        lone_flagged_bytes_(flagged_bytes_),
        to_root_flagged_bytes_(flagged_bytes_) {
    if (options_.flagged_bytes || !ring.staged) return;  // not measured through peers' memory
    lone_flagged_bytes_ = flagged_bytes_ * (std::max(ring.ranks, 2u) - 1) * 2 / 3;
    to_root_flagged_bytes_ = flagged_bytes_ / 2;
  }

  /// Returns the default of Options::least_offered_bytes. Shorter messages are no slower through slots; a pair of ranks
  /// has more of these (two and four H200).
  static constexpr std::size_t least_offered_bytes(std::uint32_t ranks) {
    return std::size_t{ranks == 2 ? 256u : 32u} << 20;
  }

  /// Returns this rank's launches for a call; none if it has nothing to do. `offers` are used by calls that consist of
  /// messages (all_to_all_v), as by groups of them.
  std::vector<DeviceLaunch> launches_of(const Call& call, const MessageOffers& offers = {}) const;
  /// For a call in a wire format (is_encoded()): whether it pays to encode data on its way, and the launches that do
  /// so.
  bool pays_to_encode(const Call& call) const;
  /// Returns the length of a call's larger buffer from which encoding on the way pays.
  std::size_t encoded_bytes() const { return borders_.encoded_bytes; }
  std::vector<DeviceLaunch> encoded_launches_of(const Call& call) const;
  /// Returns whether a call writes directly into the outputs of peers, provided that all ranks have registered these.
  /// All ranks decide alike.
  bool writes_directly(const Call& call) const;
  /// `outputs`: by rank, as addresses of this device. `hash`: of the call and of the places of the outputs.
  DeviceLaunch straight_launch_of(const Call& call, const std::array<std::byte*, kernels::max_ranks>& outputs,
                                  std::uint16_t hash) const;
  /// Returns whether the caller must copy the root's own part of a broadcast from `send` to `receive` beside its
  /// `launches`. That is so for a long broadcast in two hops that is not piped; otherwise kernels copy it.
  bool caller_copies_own(const Call& call, const std::vector<DeviceLaunch>& launches) const;
  /// Returns the launch of a reduction over the ring that a GPU shares with the CPU threads that reduce
  /// (cpu_reducers::ReducerMemory). If the call has a wire format, its bytes are encoded already.
  DeviceLaunch launch_to_reducers(const Call& call) const;
  /// Returns the slots for a collective that may share a launch with others of its group (device_aggregates.hpp): for
  /// its one hop, or for each of the two hops of an all-reduce. Nothing if it may not.
  std::optional<kernels::Slots> aggregable_slots(const Call& call) const;
  /// Returns the length of each message of such a call.
  std::size_t aggregable_bytes(const Call& call) const;
  /// Returns the slots in bulk that `calls` calls of a group use instead of `through`, or nothing. Bulk is used if the
  /// group has so many bytes that these cost more than the fixed cost of a message, and if bulk has a block for each
  /// call.
  std::optional<kernels::Slots> bulk_instead(const Call& call, const kernels::Slots& through, std::size_t calls,
                                             std::size_t group_bytes) const;
  /// Returns the messages of a call in one hop, if all have the same length.
  MessageRows rows_of(const Call& call) const;
  bool takes_two_hops(const Call& call) const {
    return call.collective == Collective::all_reduce && !takes_one_hop(call, call.count * size_bytes(call.type));
  }
  /// Returns the messages of the first hop of an all-reduce in two hops: every rank's slices for their owners.
  MessageRows rows_of_sums(const Call& call) const;
  /// Returns whether a rank's messages go to all peers at once.
  kernels::Cast cast_of(const Call& call) const;
  /// Returns the launches of the sends and receives of a group.
  std::vector<DeviceLaunch> launches_of(std::span<const Call> messages, const MessageOffers& offers = {}) const;
  /// Returns the launch of a rank that has no part in a call, which only counts the call.
  DeviceLaunch launch_of_nothing() const {
    kernels::Exchange exchange{};
    exchange.ring = ring_;
    exchange.width = 1;
    return {.protocol = kernels::flagged_protocol(ring_),
            .argument = exchange,
            .blocks = 1,
            .threads = kernels::threads_for(0, ring_.ranks, 1)};
  }
  const kernels::Ring& ring() const { return ring_; }

 private:
  /// The launch to which one end of a message belongs, in calls whose messages differ in length, so that only the two
  /// ranks of a message know its length. `number` counts the messages from one rank to the other. For each number there
  /// are up to three launches: first the sends of short messages, which fit into free slots; then the long messages;
  /// then the receives of short messages. (If no message is long, short ones are sent and received in one launch.)
  ///
  /// Every rank launches in the order of turns, so ranks never wait for one another in a circle. To see this, take the
  /// first turn that has not ended on all ranks. Each rank with an end in it has completed all its earlier launches.
  /// Sends of short messages find free slots, because the messages of earlier turns have been received; of long
  /// messages both ends run; and the short messages that are received have been sent. So the turn ends, whichever turns
  /// other ranks have.
  ///
  /// If there is one message from a rank to another, some ranks may also post as a group what others post one by one:
  /// no rank waits for another one to receive a short message, and messages of one launch do not wait for one another
  /// (DeviceLaunch::independent; in pipes, this is true only of sends with respect to receives).
  enum class Part : std::uint8_t { short_sends, long_ones, short_receives };
  struct Turn {
    std::uint32_t number;
    Part part;
    bool operator<(const Turn& other) const { return place() < other.place(); }
    /// Returns the turn's place in the order of all turns; each number has three.
    std::uint32_t place() const { return number * 3 + static_cast<std::uint32_t>(part); }
  };
  struct Ends {
    kernels::Exchange exchange{};
    bool piped = true;                              ///< whether all of them may use pipes
    bool may_be_offered = false;                    ///< whether some of them may be written to an offered place
    std::uint64_t offers[kernels::max_ranks] = {};  ///< as OfferedMessages::offers
  };
  /// The calls of a group use packets as long as together they have at most this many times the packets' border.
  /// Packets add a third of the data's bytes as flags, and save a fence. The border is where this stops paying for a
  /// single call; it pays for longer in a group, whose calls do not wait for one another.
  static constexpr std::size_t packets_of_a_group = 2;
  using Turns = std::map<Turn, Ends>;
  /// One end of a message, on this rank.
  struct End {
    bool sends;
    std::uint32_t peer;
    const void* data;
    std::size_t count;
  };

  /// Returns the limit of a call's thread blocks; 0: as many as pay.
  std::uint32_t block_limit(const Call& call) const {
    const std::uint32_t max_sms = call.max_sms != 0 ? call.max_sms : options_.max_sms;
    const std::uint32_t asked = blocks_of(max_sms, is_reduction(call.collective));
    if (asked == 0) return options_.most_blocks;
    return at_once(options_.most_blocks == 0 ? asked : std::min(asked, options_.most_blocks));
  }
  /// Returns the limit of a call's thread blocks, or, if there is none, as many as pay.
  std::uint32_t blocks_for(const Call& call) const {
    return block_limit(call) != 0 ? block_limit(call) : at_once(borders_.blocks);
  }
  /// Returns whether the user limits the call to few blocks.
  bool has_few_blocks(const Call& call) const {
    return block_limit(call) != 0 && block_limit(call) < large_call_blocks;
  }
  /// Limits a number of blocks to the SMs of the smallest GPU. Each block waits for one on every other GPU, and blocks
  /// of a second wave would begin only after the first ones have ended.
  std::uint32_t at_once(std::uint32_t blocks) const {
    return options_.sms != 0 ? std::min(blocks, options_.sms) : blocks;
  }
  kernels::Slots slots(const Call& call, kernels::Protocol protocol, std::size_t message_bytes = 0) const;
  bool is_long_through_host(std::size_t message_bytes) const;
  static std::uint32_t most_lanes(Collective collective);
  /// Returns whether all ranks send and receive equally much.
  static bool has_equal_parts(Collective collective);
  kernels::Slots slots_for(const Call& call, bool one_hop, std::size_t message_bytes) const;
  kernels::Slots protocol_for(const Call& call, bool one_hop, std::size_t message_bytes) const;
  std::uint32_t host_stagger_ns(kernels::Protocol protocol, std::size_t bytes) const;
  std::uint32_t host_stagger_ns(const Call& call, bool one_hop, const kernels::Slots& through) const;
  std::uint32_t host_stagger_ns(const kernels::Exchange& messages, kernels::Protocol protocol) const;
  std::uint32_t rounds_both_ways(std::size_t bytes) const;
  std::uint32_t rounds_for(const Call& call, bool one_hop, const kernels::Slots& through,
                           std::size_t message_bytes) const;
  bool takes_many(const Call& call) const;
  bool is_piped(const Call& call, bool one_hop, std::size_t message_bytes) const;
  /// Returns whether each of two ranks adds up half of an all-reduce (two hops), rather than all of it.
  bool halves_sums(const Call& call, std::size_t bytes) const;
  std::uint32_t piped_blocks(const Call& call, bool one_hop, std::size_t message_bytes) const;
  kernels::Slots piped_slots(const Call& call, bool one_hop, std::size_t message_bytes) const;
  bool takes_one_hop(const Call& call, std::size_t bytes) const;
  /// Returns the exchange of a new launch, among the ranks of ring_. Exchanges are constructed in place: they are
  /// large, and copying them would take most of the time of a call.
  kernels::Exchange& exchange_in(DeviceLaunch& launch) const;
  /// `length`: of a message, in the unit of `through` (bytes, or elements if encoded).
  void fill_in(kernels::Exchange& exchange, const Call& call, const kernels::Slots& through, std::size_t length) const;
  void add_end(const Call& call, const End& end, const MessageOffers& offers, std::uint32_t number, Turns& turns) const;
  /// `at_once`: all ranks are certain to make the same launches at the same time.
  std::vector<DeviceLaunch> launches_of(Turns turns, const MessageOffers& offers, bool at_once) const;
  std::vector<DeviceLaunch> all_to_all_v(const Call& call, const MessageOffers& offers) const;
  void place_blocks(kernels::Exchange& exchange, const Call& call, kernels::Cutter& part) const;
  /// `length` of the buffer and `slice` of the owners' slices are in the unit of `through`.
  kernels::TwoHop two_hop_of(const Call& call, const kernels::Slots& through, std::size_t length,
                             std::size_t slice) const;
  kernels::Slots encoded_slots(const Call& call, bool one_hop, std::size_t elements) const;
  DeviceLaunch launch_of(const kernels::TwoHop& two_hop, const kernels::Slots& through, bool reduces) const;
  /// Completes the last launch, whose exchange is filled in. Removes it if it would move nothing.
  void shape_last(const kernels::Slots& through, bool reduces, std::vector<DeviceLaunch>& launches) const;

  kernels::Ring ring_{};
  std::byte* barrier_tokens_ = nullptr;
  Options options_;
  Borders borders_;
  std::size_t least_offered_bytes_ = 0;
  /// Lengths up to which messages carry flags: in general, if a rank receives a single message rather than one from
  /// each peer, and if one rank receives all messages and sends nothing.
  std::size_t flagged_bytes_ = 0, lone_flagged_bytes_ = 0, to_root_flagged_bytes_ = 0;
};

}  // namespace strait
