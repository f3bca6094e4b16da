#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "executor/plan_on_gpu/interpreter.hpp"
#include "support/random_data.hpp"

/// Runs the kernel's own code on CPU threads, one for each thread of each block of each rank. Counters and packets are
/// atomics and all other memory is plain, so the thread sanitizer finds accesses that counters fail to order.
namespace strait::cuda::testing {

struct BlockState {
  explicit BlockState(std::uint32_t threads) : barrier(threads) {}
  std::barrier<> barrier;
  std::atomic<bool> any[3] = {};
  BlockMemory memory;
};

class CpuMachine {
 public:
  CpuMachine(BlockState& block, std::uint32_t thread, std::uint32_t threads)
      : block_(block), thread_(thread), threads_(threads) {}

  std::uint32_t thread() const { return thread_; }
  std::uint32_t threads() const { return threads_; }

  /// Uses three words in turn: while one is read, the next may already be written, and the third is cleared.
  bool barrier_or(bool value) {
    if (value) block_.any[turn_ % 3] = true;
    block_.barrier.arrive_and_wait();
    const bool result = block_.any[turn_ % 3];
    if (thread_ == 0) block_.any[(turn_ + 2) % 3] = false;
    ++turn_;
    return result;
  }

  std::uint64_t load_acquire(const std::uint64_t* word) {
    std::this_thread::yield();
    return std::atomic_ref(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
  }
  void store_release(std::uint64_t* word, std::uint64_t value) {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  void store_relaxed(std::uint64_t* word, std::uint64_t value) {
    std::atomic_ref(*word).store(value, std::memory_order_relaxed);
  }

  static Unit load_unit(const std::byte* from) {
    Unit unit;
    std::memcpy(&unit, from, sizeof(unit));
    return unit;
  }
  static void store_unit(std::byte* to, const Unit& unit) { std::memcpy(to, &unit, sizeof(unit)); }
  template <class E>
  static E load_element(const E* from) {
    E element;
    std::memcpy(&element, from, sizeof(element));
    return element;
  }
  template <class E>
  static void store_element(E* to, E element) {
    std::memcpy(to, &element, sizeof(element));
  }
  static Packets load_packets(const std::byte* from) {
    std::this_thread::yield();
    Packets packets;
    auto* words = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(from));
    for (int w = 0; w < 4; ++w) packets.words[w] = std::atomic_ref(words[w]).load(std::memory_order_relaxed);
    return packets;
  }
  static void store_packets(std::byte* to, const Packets& packets) {
    auto* words = reinterpret_cast<std::uint64_t*>(to);
    for (int w = 0; w < 4; ++w) std::atomic_ref(words[w]).store(packets.words[w], std::memory_order_relaxed);
  }

  template <DataType type, int count>
  static void widen(const Unit& unit, spec::AccumulatorType<type> (&values)[count]) {
    spec::ElementType<type> elements[count];
    std::memcpy(elements, &unit, sizeof(elements));
    for (int e = 0; e < count; ++e) values[e] = spec::load<type>(elements[e]);
  }
  template <DataType type, int count>
  static Unit narrow(const spec::AccumulatorType<type> (&values)[count]) {
    spec::ElementType<type> elements[count];
    for (int e = 0; e < count; ++e) elements[e] = spec::store<type>(values[e]);
    Unit unit;
    std::memcpy(&unit, elements, sizeof(unit));
    return unit;
  }

  bool aborted(const Control& control) {
    return std::atomic_ref(const_cast<std::uint32_t&>(control.abort)).load(std::memory_order_relaxed) != 0;
  }
  std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  bool claim(std::uint32_t* word) { return std::atomic_ref(*word).exchange(1) == 0; }
  void publish(ErrorRecord& place, ErrorRecord record, WaitFailure failure) {
    record.failure = failure;
    place = record;
  }

 private:
  BlockState& block_;
  std::uint32_t thread_;
  std::uint32_t threads_;
  std::uint32_t turn_ = 0;
};

/// A rank's memory and its uploaded program.
struct EmulatedRank {
  const RankProgram* program = nullptr;
  std::unique_ptr<std::uint64_t[]> arena;
  std::uint32_t error_claim = 0;
};

/// One launch, on all ranks.
struct EmulatedLaunch {
  std::vector<RankBuffers> buffers;
  Layout layout;
  std::uint32_t blocks = 1;
};

class EmulatedGroup {
 public:
  explicit EmulatedGroup(const Program& program) : program_(program) {
    for (const RankProgram& rank : program.ranks) {
      ranks_.push_back({&rank, std::make_unique<std::uint64_t[]>(rank.arena_bytes / 8 + 2)});
      const auto start = reinterpret_cast<std::uintptr_t>(ranks_.back().arena.get());
      arenas_.push_back(reinterpret_cast<std::byte*>((start + 15) / 16 * 16));
    }
  }

  /// Makes every channel look as if it had been used `uses` times.
  void pretend_uses(std::uint64_t uses) {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankProgram& program = program_.ranks[rank];
      const auto word = [&](std::size_t offset) -> std::uint64_t& {
        return *reinterpret_cast<std::uint64_t*>(arenas_[rank] + offset);
      };
      for (std::size_t c = 0; c < program.channels.size(); ++c)
        for (std::uint32_t block = 0; block < program_.options.max_blocks; ++block) {
          word(program.state_offset + (c * program_.options.max_blocks + block) * sizeof(ChannelState)) = uses;
          word(program.channels[c].waited.offset + block * counter_stride) = uses;
        }
    }
  }

  /// Runs the launches one after another on each rank, as a stream does. Ranks may run ahead of one another.
  void run(const std::vector<EmulatedLaunch>& launches, std::uint32_t threads, std::uint64_t timeout_ns) {
    std::deque<std::barrier<>> streams;
    std::deque<BlockState> blocks;
    std::vector<std::jthread> workers;
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto lanes = static_cast<std::uint32_t>(ranks_[rank].program->lanes.size());
      std::uint32_t most_blocks = 0;
      for (const EmulatedLaunch& launch : launches) most_blocks = std::max(most_blocks, lanes * launch.blocks);
      auto& stream = streams.emplace_back(most_blocks * threads);
      for (std::uint32_t block = 0; block < most_blocks; ++block) {
        BlockState& state = blocks.emplace_back(threads);
        for (std::uint32_t thread = 0; thread < threads; ++thread)
          workers.emplace_back([this, &launches, &stream, &state, rank, lanes, block, thread, threads, timeout_ns] {
            CpuMachine machine(state, thread, threads);
            for (const EmulatedLaunch& launch : launches) {
              if (block < lanes * launch.blocks) run_thread(machine, state, launch, rank, block, timeout_ns);
              stream.arrive_and_wait();
            }
          });
      }
    }
  }

  Control& control() { return control_; }

 private:
  Launch make_launch(const EmulatedLaunch& call, std::uint32_t rank, std::uint64_t timeout_ns) {
    Launch launch;
    const RankProgram& program = *ranks_[rank].program;
    std::copy(program.lanes.begin(), program.lanes.end(), launch.program.lanes);
    launch.program.steps = program.steps.data();
    launch.program.operands = program.operands.data();
    launch.program.items = program.items.data();
    launch.program.channels = program.channels.data();
    launch.program.error_claim = &ranks_[rank].error_claim;
    launch.program.state_offset = program.state_offset;
    launch.program.rank = rank;
    launch.program.ranks = static_cast<std::uint32_t>(ranks_.size());
    launch.program.depth = program_.options.depth;
    launch.program.block_slot_bytes = program_.options.block_slot_bytes;
    launch.program.max_blocks = program_.options.max_blocks;
    std::copy(arenas_.begin(), arenas_.end(), launch.arenas);
    std::copy(call.buffers.begin(), call.buffers.end(), launch.buffers);
    launch.control = &control_;
    launch.timeout_ns = timeout_ns;
    launch.layout = call.layout;
    launch.blocks = call.blocks;
    return launch;
  }

  void run_thread(CpuMachine& machine, BlockState& state, const EmulatedLaunch& call, std::uint32_t rank,
                  std::uint32_t block, std::uint64_t timeout_ns) {
    const Launch launch = make_launch(call, rank, timeout_ns);
    if (program_.options.protocol == Protocol::simple) {
      run_as<Protocol::simple>(machine, launch, state.memory, block);
    } else {
      run_as<Protocol::packet>(machine, launch, state.memory, block);
    }
  }
  template <Protocol protocol>
  static void run_as(CpuMachine& machine, const Launch& launch, BlockMemory& memory, std::uint32_t block) {
    Interpreter<CpuMachine, DataType::bfloat16, ReduceOp::sum, protocol>(machine, launch, memory, block).run();
  }

  const Program& program_;
  std::vector<EmulatedRank> ranks_;
  std::vector<std::byte*> arenas_;
  Control control_;
};

}  // namespace strait::cuda::testing
