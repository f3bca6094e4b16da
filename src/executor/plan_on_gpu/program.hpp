#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "plan/plan.hpp"

/// A plan in the form that a GPU gets: plain arrays without pointers, byte counts or buffers, uploaded once. Every
/// launch adds a Launch (launch.hpp) with the buffers and the count.
namespace strait::cuda {

inline constexpr std::uint32_t max_ranks = 8;
inline constexpr std::uint32_t max_sources = 8;
inline constexpr std::uint32_t max_operands = 24;  ///< of a step: sources, and destinations with one for each reader
inline constexpr std::uint32_t max_lanes = 16;
inline constexpr std::uint32_t max_lane_steps = 64;
inline constexpr std::uint32_t max_lane_operands = 256;
inline constexpr std::uint32_t max_lane_items = 256;
inline constexpr std::uint32_t max_lane_channels = 64;
inline constexpr std::size_t unit_bytes = 16;       ///< unit that a thread moves at a time
inline constexpr std::size_t counter_stride = 128;  ///< the counters of different blocks are on different cache lines

/// How the slots of a link are filled.
///  - simple: data, then a counter. Full bandwidth, but each slot costs a fence and the latency of a counter.
///  - packet: every 4 bytes travel with a 4-byte epoch in one 8-byte store. No fence and no counter, half the
///    bandwidth.
enum class Protocol : std::uint8_t { simple, packet };

/// A position in the arena (the executor's own memory) of a rank.
struct Address {
  std::uint64_t offset = 0;
  std::uint32_t rank = 0;
};

/// One end of a link to or from one reader, or of a signal. Links and signals count in the same way: the owner of
/// `waited` polls it locally, and the other end writes it. The n-th use (from 1, over all launches) may proceed once
/// *waited >= n - credit, and then posts n. Each block of a lane has its own counters and slots, `counter_stride` bytes
/// and `depth` slots apart, so that blocks never wait for one another.
struct Channel {
  Address waited;               ///< in this rank's memory
  Address posted;               ///< the `waited` of the other end
  Address slots;                ///< links only: in the reader's memory
  std::uint32_t per_slice = 0;  ///< number of uses in a slice
  std::uint32_t credit = 0;     ///< writer of a link: the link's depth
  std::uint32_t peer = 0;       ///< the rank at the other end, for error messages
  std::uint32_t tag = 0;        ///< for error messages
};

/// The state of each channel and block that a launch leaves for the next one.
struct ChannelState {
  std::uint64_t base = 0;  ///< number of uses before this launch
  std::uint64_t seen = 0;  ///< value of *waited when last polled
};

struct FlatOperand {
  enum class Kind : std::uint8_t { input, output, scratch, slot };
  Kind kind = Kind::input;
  std::uint16_t rank = 0;     ///< the owner of the input, output or scratch
  std::uint16_t channel = 0;  ///< slot: index among the lane's channels
  std::uint16_t ordinal = 0;  ///< slot: uses of the channel before this one in the same slice
  std::uint32_t chunk = 0;    ///< input, output, scratch: the chunk
};

/// A channel use to wait for before a step, or to post after it.
struct FlatItem {
  std::uint16_t channel = 0;
  std::uint16_t ordinal = 0;
  bool relaxed = false;  ///< a post that publishes no data
};

struct FlatStep {
  std::uint16_t first_operand = 0;  ///< sources, then destinations; index among the lane's operands
  std::uint16_t sources = 0;
  std::uint16_t destinations = 0;
  std::uint16_t first_item = 0;  ///< waits, then posts; index among the lane's items
  std::uint16_t waits = 0;
  std::uint16_t posts = 0;
  bool reduces = false;
  bool final = false;
  bool whole_slice = false;        ///< all operands are scratch, so the length is a full slice
  std::uint32_t length_chunk = 0;  ///< the chunk whose slice determines the length
};

/// A lane's sections of the arrays of RankProgram.
struct FlatLane {
  std::uint32_t first_step = 0, steps = 0;
  std::uint32_t first_operand = 0, operands = 0;
  std::uint32_t first_item = 0, items = 0;
  std::uint32_t first_channel = 0, channels = 0;
};

struct ProgramOptions {
  Protocol protocol = Protocol::simple;
  std::uint32_t max_blocks = 32;               ///< thread blocks of a lane
  std::uint32_t block_slot_bytes = 32 * 1024;  ///< data in one block's part of a slot; a multiple of unit_bytes
  std::uint32_t depth = 4;                     ///< slots of a link
  bool rotate = true;                          ///< ranks write a step's destinations in rotated orders
};

struct RankProgram {
  std::uint32_t rank = 0;
  std::vector<FlatLane> lanes;
  std::vector<FlatStep> steps;
  std::vector<FlatOperand> operands;
  std::vector<FlatItem> items;
  std::vector<Channel> channels;
  std::uint64_t state_offset = 0;  ///< in the arena: ChannelState by channel and block
  std::uint64_t arena_bytes = 0;   ///< scratch comes first, by chunk and block
};

struct Program {
  ProgramOptions options;
  std::vector<RankProgram> ranks;
  /// Whether slots or scratch limit the slices (to blocks * block_slot_bytes). Otherwise a slice may be a whole chunk.
  bool bounded_slices = false;
};

/// Compiles the plan. Fails with Code::unsupported if the plan needs something that this executor lacks, and with
/// Code::internal_error if the two ends of a link or signal do not match.
Result<Program> compile(const Plan& plan, const ProgramOptions& options);

}  // namespace strait::cuda
