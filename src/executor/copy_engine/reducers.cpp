#include "executor/copy_engine/reducers.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <system_error>

namespace strait::staged {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t grain_bytes = 64;          ///< shares begin at cache lines
constexpr std::size_t premultiply_bytes = 8192;  ///< a rank's products that are held at a time: in the nearest cache
constexpr auto release_every = std::chrono::milliseconds(1);
constexpr unsigned long timer_slack_ns = 1000;  ///< of naps; the system's default would stretch each by 50 us

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// The user's signals are for the user's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Reducers::Reducers(Flags& flags, std::uint32_t rank, const StagedOptions& options, std::function<bool()> has_failed)
    : flags_(flags), rank_(rank), options_(options), has_failed_(std::move(has_failed)) {}

Status Reducers::start() {
  const SignalsBlocked inherited;
  for (std::uint32_t worker = 0; worker < options_.reducers; ++worker) {
    try {
      threads_.emplace_back([this, worker] { work(worker); });
    } catch (const std::system_error& error) {
      return fail(Code::system_error, "cannot start CPU reducer " + std::to_string(worker + 1) + " of " +
                                          std::to_string(options_.reducers) + " of rank " + std::to_string(rank_) +
                                          ": " + error.what() +
                                          ". Allow more threads (ulimit -u), or set STRAIT_CPU_REDUCERS lower");
    }
  }
  return {};
}

Reducers::~Reducers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

void Reducers::push(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  forget_complete();
  entries_.push_back({.operation = operation});
}

void Reducers::begin_next() {
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    if (begun_ >= first_entry_ && begun_ - first_entry_ < entries_.size()) {
      Entry& entry = entries_[begun_ - first_entry_];
      entry.began = Clock::now();
      wakes = entry.operation.rounds.reduces();
    }
    ++begun_;
  }
  if (wakes) changed_.notify_all();
}

void Reducers::abort() {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_.exchange(true)) return;
  }
  flags_.set_aborted();
  flags_.release_waits();
  changed_.notify_all();
}

/// An operation is complete when both of this rank's streams have said so. No reducer can then be at it, for the
/// downloads of a reduction wait for them.
void Reducers::forget_complete() {
  while (!entries_.empty() && begun_ > first_entry_) {
    const Operation& oldest = entries_.front().operation;
    const std::uint64_t end = oldest.first_round + oldest.rounds.count();
    if (!flags_.is_at_least(flags_.windows().downloaded(rank_), end)) return;
    if (!flags_.is_at_least(flags_.windows().uploaded(rank_), end)) return;
    entries_.pop_front();
    ++first_entry_;
  }
}

std::optional<std::chrono::milliseconds> Reducers::running_for() {
  const std::lock_guard lock(mutex_);
  forget_complete();
  if (entries_.empty() || begun_ <= first_entry_) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - entries_.front().began);
}

void Reducers::work(std::uint32_t worker) {
  pthread_setname_np(pthread_self(), "strait-reduce");
  prctl(PR_SET_TIMERSLACK, timer_slack_ns);
  std::vector<std::byte> scratch;
  std::uint64_t next = 0;
  while (const auto operation = next_operation(next))
    if (operation->rounds.reduces()) carry_out(*operation, worker, scratch);
  if (worker == 0) keep_releasing();
}

/// Nothing at the end of this object's work, or when it has been aborted.
std::optional<Operation> Reducers::next_operation(std::uint64_t& next) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    next = std::max(next, first_entry_);
    return stopping_ || aborted_ || begun_ > next;
  });
  if (stopping_ || aborted_) return std::nullopt;
  return entries_[next++ - first_entry_].operation;
}

void Reducers::keep_releasing() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    flags_.release_waits();
    changed_.wait_for(lock, release_every);
  }
}

void Reducers::carry_out(const Operation& operation, std::uint32_t worker, std::vector<std::byte>& scratch) {
  for (std::uint64_t round = 0; round < operation.rounds.count(); ++round) {
    if (!await(operation.first_round + round)) return;
    reduce_share(operation, round, worker, scratch);
    flags_.increment(flags_.windows().reduced((operation.first_round + round) % flags_.windows().depth));
  }
}

/// Whether all have uploaded the round, and nobody still reads the result slot's last use.
bool Reducers::is_ready(std::uint64_t round) const {
  const StagedWindows& windows = flags_.windows();
  for (std::uint32_t rank = 0; rank < windows.ranks; ++rank) {
    if (!flags_.is_at_least(windows.uploaded(rank), round + 1)) return false;
    if (round >= windows.depth && !flags_.is_at_least(windows.downloaded(rank), round + 1 - windows.depth))
      return false;
  }
  return true;
}

/// False where there is nothing to wait for any more: the operation has failed.
bool Reducers::await(std::uint64_t round) {
  constexpr int looks_between_clocks = 64;
  const auto spin_end = Clock::now() + std::chrono::microseconds(options_.spin_us);
  std::chrono::microseconds nap(options_.nap_us);
  bool spins = true;
  while (!is_aborted()) {
    const bool ready = is_ready(round);
    if (ready && !flags_.is_aborted()) return true;
    if (!ready && spins) {
      for (int look = 0; look < looks_between_clocks && !is_ready(round); ++look) relax();
      spins = Clock::now() < spin_end;
      continue;
    }
    if (flags_.is_aborted() || has_failed_()) break;
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, std::chrono::microseconds(options_.nap_us) * 10);
  }
  abort();
  return false;
}

void Reducers::reduce_share(const Operation& operation, std::uint64_t round, std::uint32_t worker,
                            std::vector<std::byte>& scratch) {
  const StagedWindows& windows = flags_.windows();
  const auto slot = static_cast<std::uint32_t>((operation.first_round + round) % windows.depth);
  const std::size_t all = operation.rounds.slot_bytes(round),
                    shares = std::max<std::size_t>(std::size_t{windows.ranks} * options_.reducers, 1);
  const std::size_t share = (all + shares * grain_bytes - 1) / (shares * grain_bytes) * grain_bytes;
  const std::size_t first = std::min(all, (std::size_t{rank_} * options_.reducers + worker) * share);
  const std::size_t bytes = std::min(share, all - first);
  if (bytes == 0) return;

  std::vector<ReduceSource> sources(windows.ranks);
  for (std::uint32_t rank = 0; rank < windows.ranks; ++rank)
    sources[rank].pointer = flags_.host() + windows.upload(slot, rank) + first;
  const ReduceDestination result{.pointer = flags_.host() + windows.result(slot) + first};
  const ReduceCall call{.type = operation.type,
                        .op = operation.op,
                        .sources = sources,
                        .destinations = {&result, 1},
                        .count = bytes / size_bytes(operation.type),
                        .final = true,
                        .ranks = windows.ranks};
  if (operation.op == ReduceOp::premul_sum) {
    premultiply_and_reduce(call, slot, first, scratch);
  } else {
    reduce(call, options_.simd);
  }
}

/// Ranks upload what they have; every rank's scalar is applied here, in pieces that stay in the nearest cache.
void Reducers::premultiply_and_reduce(ReduceCall call, std::uint32_t slot, std::size_t first_byte,
                                      std::vector<std::byte>& scratch) {
  const StagedWindows& windows = flags_.windows();
  const std::size_t element = size_bytes(call.type), piece = premultiply_bytes / element, count = call.count;
  scratch.resize(windows.ranks * premultiply_bytes);
  std::vector<ReduceSource> products(windows.ranks);
  ReduceDestination result = call.destinations[0];
  for (std::size_t done = 0; done < count; done += call.count) {
    call.count = std::min(piece, count - done);
    for (std::uint32_t rank = 0; rank < windows.ranks; ++rank) {
      const std::uint32_t scalar[2] = {flags_.load(windows.scalar(slot, rank)),
                                       flags_.load(windows.scalar(slot, rank) + sizeof(std::uint32_t))};
      std::byte* const product = scratch.data() + rank * premultiply_bytes;
      premultiply(call.type, product, flags_.host() + windows.upload(slot, rank) + first_byte + done * element, scalar,
                  call.count, options_.simd);
      products[rank].pointer = product;
    }
    call.sources = products;
    call.destinations = {&result, 1};
    reduce(call, options_.simd);
    result.pointer = static_cast<std::byte*>(result.pointer) + call.count * element;
  }
}

}  // namespace strait::staged
