#pragma once

#include <cstddef>
#include <cstdint>

#include "executor/plan_on_gpu/launch.hpp"
#include "executor/plan_on_gpu/mover.hpp"

/// What one thread of one block of the kernel runs. A template over a Machine (gpu_machine.cuh; the unit tests have one
/// made of CPU threads), so that its logic can be tested without a GPU, also under the thread sanitizer.
namespace strait::cuda {

/// The state of a channel for this block, in shared memory.
struct BlockChannel {
  std::uint64_t base;
  std::uint64_t seen;
  std::uint64_t* waited;
  std::uint64_t* posted;
  std::byte* slots;
  std::uint32_t per_slice;
  std::uint32_t credit;
};

/// The shared memory of a block.
struct BlockMemory {
  FlatStep steps[max_lane_steps];
  FlatOperand operands[max_lane_operands];
  FlatItem items[max_lane_items];
  BlockChannel channels[max_lane_channels];
  MoverMemory mover;
};

template <class M, DataType type, ReduceOp op, Protocol protocol>
class Interpreter {
 public:
  STRAIT_DEVICE Interpreter(M& machine, const Launch& launch, BlockMemory& memory, std::uint32_t grid_block)
      : machine_(machine),
        launch_(launch),
        program_(launch.program),
        memory_(memory),
        lane_index_(grid_block / launch.blocks),
        block_(grid_block % launch.blocks),
        lane_(launch.program.lanes[lane_index_]) {}

  STRAIT_DEVICE void run() {
    load_lane();
    machine_.barrier_or(false);
    for (std::uint32_t slice = 0; slice < launch_.layout.slices; ++slice)
      for (std::uint32_t step = 0; step < lane_.steps; ++step)
        if (!run_step(slice, step)) return;
    save_counters();
  }

 private:
  /// Each step has two barriers: one between waits and addresses on one side and the data on the other, and one between
  /// the data and the posts. Resolving the next step concurrently with the posts is safe, because no thread moves data
  /// between the second barrier of a step and the first barrier of the next.
  STRAIT_DEVICE bool run_step(std::uint32_t slice, std::uint32_t step_index) {
    const FlatStep& step = memory_.steps[step_index];
    slice_ = slice;
    step_ = step_index;
    bool failed = false;
    for (std::uint32_t i = machine_.thread(); i < step.waits; i += machine_.threads())
      failed |= !wait(memory_.items[step.first_item + i]);
    resolve(step);
    if (machine_.barrier_or(failed)) return false;
    if (step.sources + step.destinations > 0) failed = !move(step);
    if (machine_.barrier_or(failed)) return false;
    for (std::uint32_t i = machine_.thread(); i < step.posts; i += machine_.threads())
      post(memory_.items[step.first_item + step.waits + i]);
    return true;
  }

  STRAIT_DEVICE void load_lane() {
    const std::uint32_t first = machine_.thread(), stride = machine_.threads();
    for (std::uint32_t i = first; i < lane_.channels; i += stride)
      load_channel(lane_.first_channel + i, memory_.channels[i]);
    for (std::uint32_t i = first; i < lane_.steps; i += stride) memory_.steps[i] = program_.steps[lane_.first_step + i];
    for (std::uint32_t i = first; i < lane_.operands; i += stride)
      memory_.operands[i] = program_.operands[lane_.first_operand + i];
    for (std::uint32_t i = first; i < lane_.items; i += stride) memory_.items[i] = program_.items[lane_.first_item + i];
  }

  STRAIT_DEVICE void load_channel(std::uint32_t index, BlockChannel& result) const {
    const Channel channel = program_.channels[index];
    const ChannelState state = channel_state(index);
    result.base = state.base;
    result.seen = state.seen;
    result.waited = reinterpret_cast<std::uint64_t*>(place(channel.waited) + block_ * counter_stride);
    result.posted = reinterpret_cast<std::uint64_t*>(place(channel.posted) + block_ * counter_stride);
    result.slots = place(channel.slots) + std::size_t{block_} * program_.depth * slot_bytes();
    result.per_slice = channel.per_slice;
    result.credit = channel.credit;
  }

  STRAIT_DEVICE void save_counters() {
    for (std::uint32_t i = machine_.thread(); i < lane_.channels; i += machine_.threads()) {
      const BlockChannel& channel = memory_.channels[i];
      ChannelState& state = channel_state(lane_.first_channel + i);
      state.base = channel.base + std::uint64_t{launch_.layout.slices} * channel.per_slice;
      state.seen = channel.seen;
    }
  }

  STRAIT_DEVICE ChannelState& channel_state(std::uint32_t channel) const {
    std::byte* const states = launch_.arenas[program_.rank] + program_.state_offset;
    return reinterpret_cast<ChannelState*>(states)[std::size_t{channel} * program_.max_blocks + block_];
  }
  STRAIT_DEVICE std::byte* place(const Address& address) const { return launch_.arenas[address.rank] + address.offset; }
  STRAIT_DEVICE std::size_t slot_bytes() const {
    return std::size_t{program_.block_slot_bytes} * (protocol == Protocol::packet ? 2 : 1);
  }
  /// Returns the number of uses of the channel before this one, over all launches.
  STRAIT_DEVICE std::uint64_t sequence(const BlockChannel& channel, std::uint32_t ordinal) const {
    return channel.base + std::uint64_t{slice_} * channel.per_slice + ordinal;
  }

  STRAIT_DEVICE bool wait(const FlatItem& item) {
    BlockChannel& channel = memory_.channels[item.channel];
    const std::uint64_t use = sequence(channel, item.ordinal) + 1;
    if (use <= channel.credit || channel.seen >= use - channel.credit) return true;
    PollMonitor monitor;
    while ((channel.seen = machine_.load_acquire(channel.waited)) < use - channel.credit) {
      const WaitFailure failure = monitor.check(machine_, *launch_.control, launch_.timeout_ns);
      if (failure == WaitFailure::none) continue;
      report(failure, item.channel, use - channel.credit, channel.seen);
      return false;
    }
    return true;
  }

  STRAIT_DEVICE void post(const FlatItem& item) {
    const BlockChannel& channel = memory_.channels[item.channel];
    const std::uint64_t value = sequence(channel, item.ordinal) + 1;
    if (item.relaxed) {
      machine_.store_relaxed(channel.posted, value);
    } else {
      machine_.store_release(channel.posted, value);
    }
  }

  /// Computes where this block's part of each operand is.
  STRAIT_DEVICE void resolve(const FlatStep& step) {
    const std::uint32_t operands = step.sources + step.destinations;
    for (std::uint32_t i = machine_.thread(); i < operands; i += machine_.threads()) {
      const Part part = part_of(step);
      if (i == 0) memory_.mover.bytes = part.bytes;
      memory_.mover.operands[i] = resolve(memory_.operands[step.first_operand + i], part);
    }
  }

  struct Part {
    std::size_t offset;  ///< in bytes from the start of the slice
    std::size_t bytes;
  };
  STRAIT_DEVICE Part part_of(const FlatStep& step) const {
    const Layout& layout = launch_.layout;
    const std::size_t bytes =
        (step.whole_slice ? layout.slice_elements : layout.slice_of(step.length_chunk, slice_).count) *
        size_bytes(type);
    const std::size_t units = (bytes + unit_bytes - 1) / unit_bytes;
    const std::size_t part_bytes = (units + launch_.blocks - 1) / launch_.blocks * unit_bytes;
    const std::size_t begin = block_ * part_bytes < bytes ? block_ * part_bytes : bytes;
    return {begin, part_bytes < bytes - begin ? part_bytes : bytes - begin};
  }

  STRAIT_DEVICE PlacedOperand resolve(const FlatOperand& operand, const Part& part) const {
    PlacedOperand placed{};
    placed.channel = operand.channel;
    if (operand.kind == FlatOperand::Kind::slot) {
      const BlockChannel& channel = memory_.channels[operand.channel];
      const std::uint64_t use = sequence(channel, operand.ordinal);
      placed.address = channel.slots + use % program_.depth * slot_bytes();
      placed.packet = protocol == Protocol::packet;
      placed.epoch = static_cast<std::uint32_t>(use + 1);
      placed.fill = placed.packet && (use & (packet_fill_period - 1)) < program_.depth;
    } else if (operand.kind == FlatOperand::Kind::scratch) {
      const std::size_t index = std::size_t{operand.chunk} * program_.max_blocks + block_;
      placed.address = launch_.arenas[operand.rank] + index * program_.block_slot_bytes;
    } else {
      const RankBuffers& buffers = launch_.buffers[operand.rank];
      const void* buffer = operand.kind == FlatOperand::Kind::input ? buffers.input : buffers.output;
      const std::size_t offset = launch_.layout.slice_of(operand.chunk, slice_).offset * size_bytes(type) + part.offset;
      placed.address = static_cast<std::byte*>(const_cast<void*>(buffer)) + offset;
    }
    return placed;
  }

  STRAIT_DEVICE bool move(const FlatStep& step) {
    Mover<M, type, op, protocol> mover(machine_, memory_.mover, step, program_, *launch_.control, launch_.timeout_ns);
    if (mover.run()) return true;
    report(mover.failure(), mover.failed_operand().channel, mover.failed_operand().epoch, 0);
    return false;
  }

  STRAIT_DEVICE void report(WaitFailure failure, std::uint32_t channel, std::uint64_t expected, std::uint64_t seen) {
    if (!machine_.claim(program_.error_claim)) return;
    ErrorRecord record;
    record.lane = lane_index_;
    record.block = block_;
    record.step = step_;
    record.slice = slice_;
    record.peer = program_.channels[lane_.first_channel + channel].peer;
    record.tag = program_.channels[lane_.first_channel + channel].tag;
    record.expected = expected;
    record.seen = seen;
    machine_.publish(launch_.control->errors[program_.rank], record, failure);
  }

  M& machine_;
  const Launch& launch_;
  const DeviceProgram& program_;
  BlockMemory& memory_;
  const std::uint32_t lane_index_;
  const std::uint32_t block_;
  const FlatLane& lane_;
  std::uint32_t slice_ = 0;
  std::uint32_t step_ = 0;
};

}  // namespace strait::cuda
