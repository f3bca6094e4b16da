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
  Clock::time_point since;  ///< when the thread last found a chunk, or woke
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
  sleeps_.resize(setup_.options.threads, 0);
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

void LaneReducers::expect(const kernels::Message& message) {
  const std::size_t chunks = (message.bytes + message.chunk_bytes - 1) / message.chunk_bytes;
  {
    const std::lock_guard lock(mutex_);
    for (std::uint32_t lane = 0; lane < message.lanes; ++lane)
      if (is_own(lane)) expected_ += (chunks + message.lanes - 1 - lane) / message.lanes;
    std::fill(sleeps_.begin(), sleeps_.end(), 0);
  }
  changed_.notify_all();
}

void LaneReducers::expect_always() {
  {
    const std::lock_guard lock(mutex_);
    if (always_.exchange(true)) return;
    std::fill(sleeps_.begin(), sleeps_.end(), 0);
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
  Worker worker;
  worker.index = index;
  for (std::uint32_t lane = 0; lane < setup_.layout.lanes; ++lane)
    if (thread_of(lane) == setup_.rank * setup_.options.threads + index) worker.lanes.push_back({.number = lane});
  sleep(worker);  // until something is expected
  while (!stopping_ && !aborted_) {
    if (serve(worker))
      worker.since = Clock::now();
    else if (!wait(worker))
      return;
  }
}

/// Adds up the next chunks of the thread's lanes that have arrived. Returns false if none have.
bool LaneReducers::serve(Worker& worker) {
  bool has_moved = false;
  for (Lane& lane : worker.lanes) {
    if (!is_ready(lane)) continue;
    reduce_chunk(lane);
    ++lane.uses;
    ++added_;
    has_moved = true;
  }
  return has_moved;
}

/// Returns whether all GPUs have filled the lane's next slot for the same call, and have read the result slot's
/// previous contents.
bool LaneReducers::is_ready(const Lane& lane) const {
  const ReducerMemory& layout = setup_.layout;
  const std::uint64_t filled = flag(layout.up(setup_.rank), lane.number, lane.uses).load(std::memory_order_acquire);
  if (filled >> 16 != kernels::slot_flag(lane.uses, 0) >> 16) return false;
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
  return thread_of(lane) / setup_.options.threads;
}

std::optional<std::uint32_t> LaneReducers::awaited_rank() const {
  for (std::uint32_t lane = 0; lane < setup_.layout.lanes; ++lane)
    if (const auto rank = awaited_rank(lane)) return rank;
  return std::nullopt;
}

void LaneReducers::reduce_chunk(const Lane& lane) {
  const ReducerMemory& layout = setup_.layout;
  const std::size_t slot = lane.number * kernels::slot_depth + lane.uses % kernels::slot_depth;
  const std::uint64_t filled = flag(layout.up(setup_.rank), lane.number, lane.uses).load(std::memory_order_relaxed);
  const std::uint64_t label =
      word(layout.up(setup_.rank), kernels::label_distance + slot).load(std::memory_order_relaxed);
  const auto bytes = std::min(static_cast<std::uint32_t>(label >> 32), layout.slot_bytes);
  add_up(Sum::of_label(static_cast<std::uint32_t>(label)), slot, bytes);
  for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) {
    flag(layout.down(rank), lane.number, lane.uses).store(filled, std::memory_order_release);
    returned(layout.up(rank), ReducerMemory::threads, lane.number).store(lane.uses + 1, std::memory_order_release);
  }
}

void LaneReducers::add_up(const Sum& sum, std::size_t slot, std::uint32_t bytes) const {
  const ReducerMemory& layout = setup_.layout;
  std::byte* const result = setup_.memory + layout.results() + slot * layout.slot_bytes;
  const auto chunk_of = [&](std::uint32_t rank) {
    return setup_.memory + layout.uploads(rank) + slot * layout.slot_bytes;
  };
  if (sum.wire != WireFormat::off) {
    std::array<const std::byte*, kernels::max_ranks> runs;
    for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) runs[rank] = chunk_of(rank);
    return recode({.format = sum.wire,
                   .sources = {runs.data(), layout.ranks},
                   .result = result,
                   .run_blocks = ReducerMemory::run_blocks,
                   .runs = bytes / ReducerMemory::run_bytes(sum.wire),
                   .averaged = sum.op == ReduceOp::avg ? setup_.averaged : 0},
                  setup_.options.simd);
  }
  std::array<ReduceSource, kernels::max_ranks> sources;
  for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) sources[rank].pointer = chunk_of(rank);
  const ReduceDestination destination{.pointer = result};
  reduce({.type = sum.type,
          .op = sum.op,
          .sources = {sources.data(), layout.ranks},
          .destinations = {&destination, 1},
          .count = bytes / size_bytes(sum.type),
          .final = true,
          .ranks = setup_.averaged},
         setup_.options.simd);
}

bool LaneReducers::wait(Worker& worker) {
  const auto has_chunk = [&](auto&& is_there) {
    return std::any_of(worker.lanes.begin(), worker.lanes.end(), is_there);
  };
  for (int look = 0; look < looks_between_clocks; ++look) {
    relax();
    if (has_chunk([this](const Lane& lane) { return is_ready(lane); })) return true;
  }
  if (is_over()) return false;
  if (worker.index == 0 && sleeping_ != 0) wake_others();
  if (expects_any() && Clock::now() - worker.since < std::chrono::microseconds(setup_.options.spin_us)) return true;
  // A chunk that has come from this rank's GPU, but not from all, is not waited for in sleep: nobody would wake this
  // thread when the others come.
  const auto has_begun = [this](const Lane& lane) {
    return latest(setup_.layout.up(setup_.rank), lane.number) > lane.uses;
  };
  if (!has_chunk(has_begun) && sleep(worker)) return true;
  nap(worker);
  return !is_over();
}

/// The longer the thread has waited in vain, the longer it may take until it sees what comes.
void LaneReducers::nap(const Worker& worker) const {
  constexpr int part = 64;
  const std::chrono::microseconds least(setup_.options.nap_us);
  const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - worker.since);
  std::this_thread::sleep_for(std::clamp(waited / part, least, least * 10));
}

bool LaneReducers::sleep(Worker& worker) {
  std::unique_lock lock(mutex_);
  if (worker.index == 0 && expects_any()) return false;
  sleeps_[worker.index] = 1;
  ++sleeping_;
  changed_.wait(lock, [&] { return stopping_ || aborted_ || sleeps_[worker.index] == 0; });
  --sleeping_;
  worker.since = Clock::now();
  return true;
}

void LaneReducers::wake_others() {
  const std::size_t arena = setup_.layout.up(setup_.rank);
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    for (std::uint32_t lane = 0; lane < setup_.layout.lanes; ++lane) {
      const std::uint32_t index = thread_of(lane) % setup_.options.threads;
      if (!is_own(lane) || sleeps_[index] == 0) continue;
      const std::uint64_t added = returned(arena, ReducerMemory::threads, lane).load(std::memory_order_relaxed);
      if (latest(arena, lane) <= added) continue;
      sleeps_[index] = 0;
      wakes = true;
    }
  }
  if (wakes) changed_.notify_all();
}

bool LaneReducers::is_over() {
  if (!aborted_ && setup_.has_failed()) abort();
  return stopping_ || aborted_;
}

std::atomic_ref<std::uint64_t> LaneReducers::word(std::size_t arena, std::size_t index) const {
  return std::atomic_ref(reinterpret_cast<std::uint64_t*>(setup_.memory + arena + kernels::flags_offset_bytes)[index]);
}

std::atomic_ref<std::uint64_t> LaneReducers::flag(std::size_t arena, std::uint32_t lane, std::uint64_t use) const {
  return word(arena, lane * kernels::slot_depth + use % kernels::slot_depth);
}

std::atomic_ref<std::uint64_t> LaneReducers::returned(std::size_t arena, std::uint32_t reader,
                                                      std::uint32_t lane) const {
  return std::atomic_ref(reinterpret_cast<std::uint64_t*>(
      setup_.memory + arena)[kernels::lane_index(Protocol::bulk, Cast::single, reader, lane)]);
}

}  // namespace strait::cpu_reducers
