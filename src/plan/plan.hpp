#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "base/types.hpp"

/// The plan: the form in which an algorithm is handed to executors, proofs, the clock and printers.
///
/// A plan is a plain value. It names ranks, chunks and links, but no byte counts, pointers or transports. One RankPlan
/// describes what one rank does. The plans of all ranks fit together through links and signals, which have the same
/// names at both ends, so that each rank can build its own plan without talking to others.
namespace strait {

enum class Buffer : std::uint8_t { input, output, scratch };

/// One source or destination of a step: one slice of one chunk.
///  - local:   this rank's buffer.
///  - peer:    rank `peer`'s buffer, read or written directly. Legal only between that rank's signal and the matching
///    wait (the proof checks both sides).
///  - send:    destination only: the next free slot of link `link` (an index into RankPlan::links).
///  - receive: source only: the next filled slot of link `link`. A step with a receive and no destination discards the
///    slot.
/// For send and receive, (buffer, chunk) name the chunk whose slice is transferred, in *this* rank's numbering. The
/// chunk determines the length, and the proof checks that both ends name chunks of equal length.
struct Operand {
  enum class Kind : std::uint8_t { local, peer, send, receive };
  Kind kind = Kind::local;
  Buffer buffer = Buffer::input;
  std::uint16_t link = 0;   ///< index into RankPlan::links (send, receive)
  std::uint32_t peer = 0;   ///< rank of the peer (peer)
  std::uint32_t chunk = 0;  ///< index into the chunks of `buffer`

  friend bool operator==(const Operand&, const Operand&) = default;
};

/// `destinations = reduce(sources)`. The order of actions: take one from each signal in `waits`; acquire every receive
/// and reserve every send; compute; release and publish; add one to each signal in `signals`.
///  - reduces == false: exactly one source, copied bit for bit; or no source and no destination (signals only).
///  - reduces == true: sources are combined *in the listed order* in the accumulation type and rounded once.
///  - final: the result contains every rank's contribution; averages divide here, before the one rounding.
struct Step {
  std::vector<std::uint16_t> waits;  ///< indices into RankPlan::signals, role wait
  std::vector<Operand> sources;
  std::vector<Operand> destinations;
  std::vector<std::uint16_t> signals;  ///< indices into RankPlan::signals, role signal
  bool reduces = false;
  bool final = false;

  friend bool operator==(const Step&, const Step&) = default;
};

/// Identify a link or a signal across ranks, as returned by name() of its ends.
using LinkName = std::tuple<std::uint32_t, std::uint16_t, std::vector<std::uint32_t>>;  // writer, tag, readers
using SignalName = std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>;             // from, to, tag

/// One end of a link: a one-way, ordered channel of slots with one writer and one or more readers. Every reader
/// consumes every slot. Within a rank's plan each end is used by one lane only.
struct LinkEnd {
  bool sends = false;     ///< whether this rank is the writer
  std::uint16_t tag = 0;  ///< distinguishes links of one writer to the same readers (for example one per lane)
  std::uint32_t writer = 0;
  std::vector<std::uint32_t> readers;  ///< ascending

  auto name() const { return std::tie(writer, tag, readers); }
  friend bool operator==(const LinkEnd&, const LinkEnd&) = default;
};

/// One end of a signal, a counter from one rank to another.
struct SignalEnd {
  bool signals = false;  ///< whether this rank adds to the counter (otherwise it waits)
  std::uint16_t tag = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;

  auto name() const { return std::tie(from, to, tag); }
  friend bool operator==(const SignalEnd&, const SignalEnd&) = default;
};

/// Steps in order; the whole list runs once for each slice of the lane's chunks. (If each chunk is a message of its
/// own, as in send/recv and all-to-all-v, a step runs for all its slices before the next step, so that messages between
/// two ranks arrive whole and in the order in which they were posted.) The lanes of a rank are independent, except for
/// the order that links and signals impose (including those from a rank to itself).
struct Lane {
  std::vector<Step> steps;

  friend bool operator==(const Lane&, const Lane&) = default;
};

/// How the input, output and scratch are cut into chunks. Some buffers have one block per rank: all-gather's and
/// gather's output, reduce-scatter's and scatter's input, both of all-to-all. There the chunks of block b are those
/// from b * chunks_per_block on, in order. Every other buffer is one block. A block of c elements is cut into
/// chunks_per_block chunks of ceil(c / chunks_per_block) elements, rounded up to 16 bytes; the last ones may be shorter
/// or empty. plan/layout.hpp computes this. (For all-to-all-v and send/recv the caller gives the count of each chunk.)
/// A scratch chunk is one slice long, and each slice reuses it.
struct RankPlan {
  std::string algorithm;  ///< catalogue name, "ring"
  Collective collective = Collective::all_reduce;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t root = 0;
  std::uint32_t chunks_per_block = 1;
  std::uint32_t scratch_chunks = 0;
  std::vector<LinkEnd> links;
  std::vector<SignalEnd> signals;
  std::vector<Lane> lanes;

  std::uint32_t input_blocks() const;   ///< number of blocks of the input: ranks or 1 (0 if this rank has no input)
  std::uint32_t output_blocks() const;  ///< the same of the output
  std::uint32_t input_chunks() const { return input_blocks() * chunks_per_block; }
  std::uint32_t output_chunks() const { return output_blocks() * chunks_per_block; }
  std::size_t steps() const;  ///< number of steps of all lanes, for one slice

  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

/// Returns the number of elements of the larger of a rank's two buffers, for a call with the count `count`.
constexpr std::size_t larger_buffer_count(Collective collective, std::size_t count, std::uint32_t ranks) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      return count * ranks;
    default:
      return count;
  }
}

/// The plans of all ranks, indexed by rank: the input of proofs, of the clock and of drawings.
using Plan = std::vector<RankPlan>;

}  // namespace strait
