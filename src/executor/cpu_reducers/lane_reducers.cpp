#include "executor/cpu_reducers/lane_reducers.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/own_thread.hpp"
#include "base/shortage.hpp"
#include "executor/host/quantize.hpp"

namespace strait::cpu_reducers {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::Cast;
using kernels::Protocol;

constexpr int looks_between_clocks = 64;

}  // namespace

/// The state of one thread.
struct LaneReducers::Worker {
  std::uint32_t index = 0;
  std::vector<Lane> lanes;
  std::uint64_t first_lane_uses = 0;  ///< uses of lane 0 by this rank's GPU before this reduction
  Reduction reduction;
  std::uint64_t number = 0;    ///< number of the reduction
  bool has_announced = false;  ///< whether the thread has announced that the GPU has begun it
  Clock::time_point since;     ///< when the thread last found a chunk
  std::chrono::microseconds nap{0};
};

LaneReducers::~LaneReducers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

Status LaneReducers::start() {
  const SignalsBlocked inherited;
  finished_.resize(setup_.options.threads);
  for (std::uint32_t index = 0; index < setup_.options.threads; ++index) {
    try {
      threads_.emplace_back([this, index] { work(index); });
    } catch (const std::system_error& error) {
      return cannot_start_thread(
          error, "that adds up, number " + std::to_string(index + 1) + " of " + std::to_string(setup_.options.threads),
          "set STRAIT_CPU_REDUCERS lower");
    }
    STRAIT_TRY(place(threads_.back()));
  }
  return {};
}

Status LaneReducers::place(std::jthread& thread) const {
  if (setup_.options.cores.empty()) return {};
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::string names;
  for (const std::uint32_t core : setup_.options.cores) {
    CPU_SET(core, &cores);
    names += (names.empty() ? "" : ",") + std::to_string(core);
  }
  if (const int result = pthread_setaffinity_np(thread.native_handle(), sizeof cores, &cores); result != 0)
    return fail(Code::invalid_argument,
                "CPU reducers cannot run on cores " + names + " (STRAIT_CPU_REDUCER_CORES): " + std::strerror(result));
  return {};
}

void LaneReducers::push(const Reduction& reduction) {
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t done = *std::min_element(finished_.begin(), finished_.end());
    for (; first_ < done; ++first_) reductions_.pop_front();
    reductions_.push_back(reduction);
  }
  changed_.notify_all();
}

void LaneReducers::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  changed_.notify_all();
}

void LaneReducers::work(std::uint32_t index) {
  begin_polling_thread("strait-reduce");
  const std::uint32_t threads = setup_.options.threads * setup_.layout.ranks;
  Worker worker;
  worker.index = index;
  for (std::uint32_t lane = setup_.rank * setup_.options.threads + index; lane < setup_.layout.lanes; lane += threads)
    worker.lanes.push_back({.number = lane});
  while (const auto reduction = next(worker.number)) {
    worker.reduction = *reduction;
    if (!carry_out(worker)) return;
    for (std::uint32_t round = 0; chunk_at(reduction->message, 0, round).bytes != 0; ++round) ++worker.first_lane_uses;
    ++worker.number;
  }
}

/// Waits for the reduction of that number. Returns nothing if the threads are to end.
std::optional<Reduction> LaneReducers::next(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || aborted_ || first_ + reductions_.size() > number; });
  if (stopping_ || aborted_) return std::nullopt;
  return reductions_[number - first_];
}

/// Returns false if the reduction was given up.
bool LaneReducers::carry_out(Worker& worker) {
  const kernels::Message& message = worker.reduction.message;
  for (Lane& lane : worker.lanes) lane.round = 0;
  worker.since = Clock::now();
  worker.has_announced = false;
  worker.nap = std::chrono::microseconds(setup_.options.nap_us);
  for (;;) {
    bool is_left = false, has_moved = false;
    for (Lane& lane : worker.lanes) {
      const std::uint32_t bytes = chunk_at(message, lane.number, lane.round).bytes;
      if (bytes == 0) continue;
      is_left = true;
      if (!is_ready(lane, message.call_hash)) continue;
      reduce_chunk(worker.reduction, lane, bytes);
      ++lane.round;
      ++lane.uses;
      has_moved = true;
    }
    if (!is_left) break;
    if (has_moved) {
      worker.since = Clock::now();
      if (!std::exchange(worker.has_announced, true)) note_begun(worker.number);
    } else if (!wait(worker)) {
      return false;
    }
  }
  const std::lock_guard lock(mutex_);
  finished_[worker.index] = worker.number + 1;
  return true;
}

/// Wakes the threads that sleep until the GPU has begun the reduction.
void LaneReducers::note_begun(std::uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    if (begun_ > number) return;
    begun_ = number + 1;
  }
  changed_.notify_all();
}

/// Returns whether all GPUs have filled the lane's next slot, and have read the result slot's previous contents.
bool LaneReducers::is_ready(const Lane& lane, std::uint16_t call_hash) const {
  const ReducerMemory& layout = setup_.layout;
  const std::uint64_t filled = kernels::slot_flag(lane.uses, call_hash);
  for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) {
    const bool has_come = flag(layout.up(rank), lane.number, lane.uses).load(std::memory_order_acquire) == filled &&
                          returned(layout.down(rank), ReducerMemory::gpu, lane.number).load(std::memory_order_acquire) +
                                  kernels::slot_depth >
                              lane.uses;
    if (!has_come) return false;
  }
  return true;
}

/// Returns how many uses of a lane's slots in an arena have been filled.
std::uint64_t LaneReducers::latest(std::size_t arena, std::uint32_t lane) const {
  std::uint64_t most = 0;
  for (std::uint32_t slot = 0; slot < kernels::slot_depth; ++slot)
    most = std::max(most, flag(arena, lane, slot).load(std::memory_order_acquire) >> 16);
  return most;
}

std::optional<std::uint32_t> LaneReducers::awaited_rank(std::uint32_t lane) const {
  const ReducerMemory& layout = setup_.layout;
  const std::uint64_t sums = latest(layout.down(setup_.rank), lane);
  if (latest(layout.up(setup_.rank), lane) <= sums) return std::nullopt;  // this rank's GPU waits for no sum
  const auto others_first = [&](auto&& is_late) -> std::optional<std::uint32_t> {
    for (std::uint32_t i = 1; i <= layout.ranks; ++i)
      if (const std::uint32_t rank = (setup_.rank + i) % layout.ranks; is_late(rank)) return rank;
    return std::nullopt;
  };
  if (const auto rank = others_first([&](std::uint32_t each) { return latest(layout.up(each), lane) <= sums; }))
    return rank;
  const auto holds_slot = [&](std::uint32_t each) {
    const auto& read = returned(layout.down(each), ReducerMemory::gpu, lane);
    return read.load(std::memory_order_acquire) + kernels::slot_depth <= sums;
  };
  if (const auto rank = others_first(holds_slot)) return rank;
  return lane % (setup_.options.threads * layout.ranks) / setup_.options.threads;  // as in work()
}

std::optional<std::uint32_t> LaneReducers::awaited_rank() const {
  for (std::uint32_t lane = 0; lane < setup_.layout.lanes; ++lane)
    if (const auto rank = awaited_rank(lane)) return rank;
  return std::nullopt;
}

void LaneReducers::reduce_chunk(const Reduction& reduction, const Lane& lane, std::uint32_t bytes) {
  const ReducerMemory& layout = setup_.layout;
  add_up(reduction, lane.number * kernels::slot_depth + lane.uses % kernels::slot_depth, bytes);
  const std::uint64_t filled = kernels::slot_flag(lane.uses, reduction.message.call_hash);
  for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) {
    flag(layout.down(rank), lane.number, lane.uses).store(filled, std::memory_order_release);
    returned(layout.up(rank), ReducerMemory::threads, lane.number).store(lane.uses + 1, std::memory_order_release);
  }
}

void LaneReducers::add_up(const Reduction& reduction, std::size_t slot, std::uint32_t bytes) const {
  const ReducerMemory& layout = setup_.layout;
  std::byte* const result = setup_.memory + layout.results() + slot * layout.slot_bytes;
  const auto chunk_of = [&](std::uint32_t rank) {
    return setup_.memory + layout.uploads(rank) + slot * layout.slot_bytes;
  };
  if (reduction.wire != WireFormat::off) {
    std::array<const std::byte*, kernels::max_ranks> runs;
    for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) runs[rank] = chunk_of(rank);
    return recode({.format = reduction.wire,
                   .sources = {runs.data(), layout.ranks},
                   .result = result,
                   .run_blocks = ReducerMemory::run_blocks,
                   .runs = bytes / ReducerMemory::run_bytes(reduction.wire),
                   .averaged = reduction.op == ReduceOp::avg ? setup_.averaged : 0},
                  setup_.options.simd);
  }
  std::array<ReduceSource, kernels::max_ranks> sources;
  for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) sources[rank].pointer = chunk_of(rank);
  const ReduceDestination destination{.pointer = result};
  reduce({.type = reduction.type,
          .op = reduction.op,
          .sources = {sources.data(), layout.ranks},
          .destinations = {&destination, 1},
          .count = bytes / size_bytes(reduction.type),
          .final = true,
          .ranks = setup_.averaged},
         setup_.options.simd);
}

bool LaneReducers::has_work(const Worker& worker) const {
  const kernels::Message& message = worker.reduction.message;
  return std::any_of(worker.lanes.begin(), worker.lanes.end(), [&](const Lane& lane) {
    return chunk_at(message, lane.number, lane.round).bytes != 0 && is_ready(lane, message.call_hash);
  });
}

bool LaneReducers::wait(Worker& worker) {
  for (int look = 0; look < looks_between_clocks; ++look) {
    relax();
    if (has_work(worker)) return true;
  }
  if (is_over()) return false;
  if (Clock::now() - worker.since < std::chrono::microseconds(setup_.options.spin_us)) return true;
  if (!has_begun(worker)) {
    const bool begins = wait_until_begun(worker);
    worker.since = Clock::now();
    return begins;
  }
  std::this_thread::sleep_for(worker.nap);
  worker.nap = std::min(worker.nap * 2, std::chrono::microseconds(setup_.options.nap_us) * 10);
  return !is_over();
}

bool LaneReducers::has_begun(const Worker& worker) {
  const std::lock_guard lock(mutex_);
  return begun_ > worker.number;
}

/// Waits until this rank's GPU has filled its first slot. The first thread polls, the others sleep until it has seen
/// that.
bool LaneReducers::wait_until_begun(const Worker& worker) {
  if (worker.index != 0) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || aborted_ || begun_ > worker.number; });
    return !stopping_ && !aborted_;
  }
  // The flag of this use of the slot, or of a later one if other threads have been faster.
  const std::uint64_t filled = kernels::slot_flag(worker.first_lane_uses, 0);
  const auto first = flag(setup_.layout.up(setup_.rank), 0, worker.first_lane_uses);
  while (first.load(std::memory_order_relaxed) < filled) {
    if (is_over()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(setup_.options.nap_us));
  }
  note_begun(worker.number);
  return true;
}

bool LaneReducers::is_over() {
  if (!aborted_ && setup_.has_failed()) abort();
  return stopping_ || aborted_;
}

std::atomic_ref<std::uint64_t> LaneReducers::flag(std::size_t arena, std::uint32_t lane, std::uint64_t use) const {
  const std::size_t slot = lane * kernels::slot_depth + use % kernels::slot_depth;
  return std::atomic_ref(reinterpret_cast<std::uint64_t*>(setup_.memory + arena + kernels::flags_offset_bytes)[slot]);
}

std::atomic_ref<std::uint64_t> LaneReducers::returned(std::size_t arena, std::uint32_t reader,
                                                      std::uint32_t lane) const {
  return std::atomic_ref(reinterpret_cast<std::uint64_t*>(
      setup_.memory + arena)[kernels::lane_index(Protocol::bulk, Cast::single, reader, lane)]);
}

}  // namespace strait::cpu_reducers
