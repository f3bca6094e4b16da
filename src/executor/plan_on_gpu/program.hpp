#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "plan/plan.hpp"

/// What a GPU is given of a plan: plain arrays without pointers, byte counts or buffers, uploaded once. Every launch
/// adds a Launch (launch.hpp) with the buffers and the count.
namespace strait::cuda {

inline constexpr std::uint32_t max_ranks = 8;
inline constexpr std::uint32_t max_sources = 8;
inline constexpr std::uint32_t max_operands = 24;  ///< of a step: sources and destinations, one for each reader
inline constexpr std::uint32_t max_lanes = 16;
inline constexpr std::uint32_t max_lane_steps = 64;
inline constexpr std::uint32_t max_lane_operands = 256;
inline constexpr std::uint32_t max_lane_items = 256;
inline constexpr std::uint32_t max_lane_channels = 64;
inline constexpr std::size_t unit_bytes = 16;       ///< what a thread moves at a time
inline constexpr std::size_t counter_stride = 128;  ///< each block's counters lie on lines of their own

/// How the slots of a link are filled.
///  - simple: data, then a counter. Full bandwidth; a fence and a counter's flight of latency for each slot.
///  - packet: every 4 bytes travel with a 4-byte epoch in one 8-byte store. No fence, no counter; half the bandwidth.
enum class Protocol : std::uint8_t { simple, packet };

/// A place in the arena (the executor's own memory) of a rank.
struct Address {
  std::uint64_t offset = 0;
  std::uint32_t rank = 0;
};

/// One end of a link to or from one reader, or of a signal. Link and signal count alike: the owner of `waited` polls it
/// locally, the other end writes it. The n-th use (from 1, over all launches) passes once *waited >= n - credit, and
/// posts n. Each block of a lane has its own counters and slots, `counter_stride` and `depth` slots apart, so that
/// blocks never wait for one another.
struct Channel {
  Address waited;               ///< own memory
  Address posted;               ///< the other end's `waited`
  Address slots;                ///< links: in the reader's memory
  std::uint32_t per_slice = 0;  ///< uses in a slice
  std::uint32_t credit = 0;     ///< writer of a link: its depth; waiter: the signal's credits
  std::uint32_t peer = 0;       ///< the rank at the other end, for messages
  std::uint32_t tag = 0;        ///< for messages
};

/// What a launch leaves for the next one, of each channel and block.
struct ChannelState {
  std::uint64_t base = 0;  ///< uses before this launch
  std::uint64_t seen = 0;  ///< the value of *waited when last polled
};

struct FlatOperand {
  enum class Kind : std::uint8_t { input, output, scratch, slot };
  Kind kind = Kind::input;
  std::uint16_t rank = 0;     ///< whose input, output or scratch
  std::uint16_t channel = 0;  ///< slot: index among the lane's channels
  std::uint16_t ordinal = 0;  ///< slot: uses of the channel before this one in a slice
  std::uint32_t chunk = 0;    ///< input, output, scratch
};

/// Something to wait for, or to post, before or after a step.
struct FlatItem {
  std::uint16_t channel = 0;
  std::uint16_t ordinal = 0;
  bool relaxed = false;  ///< a post that publishes no data
};

struct FlatStep {
  std::uint16_t first_operand = 0;  ///< sources, then destinations; among the lane's
  std::uint16_t sources = 0;
  std::uint16_t destinations = 0;
  std::uint16_t first_item = 0;  ///< waits, then posts; among the lane's
  std::uint16_t waits = 0;
  std::uint16_t posts = 0;
  bool reduces = false;
  bool final = false;
  bool whole_slice = false;        ///< only scratch takes part: the length is a full slice
  std::uint32_t length_chunk = 0;  ///< the chunk whose slice gives the length
};

/// A lane's part of each of the arrays of RankProgram.
struct FlatLane {
  std::uint32_t first_step = 0, steps = 0;
  std::uint32_t first_operand = 0, operands = 0;
  std::uint32_t first_item = 0, items = 0;
  std::uint32_t first_channel = 0, channels = 0;
};

struct ProgramOptions {
  Protocol protocol = Protocol::simple;
  std::uint32_t max_blocks = 32;               ///< blocks of a lane
  std::uint32_t block_slot_bytes = 32 * 1024;  ///< data in one block's part of a slot; a multiple of unit_bytes
  std::uint32_t depth = 4;                     ///< slots of a link
  bool rotate = true;                          ///< each rank writes a step's destinations starting with another one
};

struct RankProgram {
  std::uint32_t rank = 0;
  std::vector<FlatLane> lanes;
  std::vector<FlatStep> steps;
  std::vector<FlatOperand> operands;
  std::vector<FlatItem> items;
  std::vector<Channel> channels;
  std::uint64_t state_offset = 0;  ///< in the arena: ChannelState by channel and block
  std::uint64_t arena_bytes = 0;   ///< scratch first, by chunk and block
};

struct Program {
  ProgramOptions options;
  std::vector<RankProgram> ranks;
  /// Whether slots or scratch bound the slices (to blocks * block_slot_bytes); else a slice may be a whole chunk.
  bool bounded_slices = false;
};

/// Fails with Code::unsupported for plans that need what this executor lacks, with Code::internal_error for plans whose
/// ends do not fit.
Result<Program> compile(const Plan& plan, const ProgramOptions& options);

}  // namespace strait::cuda
