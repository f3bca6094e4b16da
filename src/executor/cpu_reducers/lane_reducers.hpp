#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "executor/cpu_reducers/reducer_memory.hpp"
#include "executor/host/reduce.hpp"

namespace strait::cpu_reducers {

struct Options {
  std::uint32_t threads = 4;  ///< number of threads of a rank
  /// How long a thread polls for a chunk before it sleeps or naps between polls: about twenty times as long as a round
  /// of chunks takes if all is well. A nap can take half a millisecond in a virtual machine, and all ranks wait for the
  /// slowest thread.
  std::uint32_t spin_us = 2000;
  std::uint32_t nap_us = 30;  ///< the shortest nap; naps grow to ten times that
  /// Cores on which the threads of this rank may run; empty: they inherit the affinity of the creating thread.
  std::vector<std::uint32_t> cores;
  Simd simd = best_simd();
};

/// One rank's share of the CPU threads that act as a rank towards every GPU of the host (ReducerMemory). Of all ranks'
/// threads together, thread t serves the lanes t, t + threads, and so on. On each lane it adds up the ranks' chunks, in
/// rank order and with one rounding, as soon as all of them have arrived and while they are in the cache. The threads
/// know nothing of calls: the label beside a chunk says how to add it. So GPUs may come to calls in any order in which
/// all of them do.
///
/// The threads sleep while nothing is expected. They wake when the host expects chunks, and poll while these arrive. If
/// none come for a long time, because the GPU is busy with other work or because graphs may be launched at any time,
/// the first thread continues to look, with naps, and wakes another one if a chunk has come on its lanes. Unless cores
/// are named, threads inherit the creating thread's affinity and are not pinned.
class LaneReducers {
 public:
  struct Setup {
    std::byte* memory = nullptr;  ///< zeroed before the first rank opens it; kept by the caller
    ReducerMemory layout;
    std::uint32_t rank = 0;      ///< rank within the layout
    std::uint32_t averaged = 0;  ///< number of contributions by which an average divides
    Options options;
    /// Returns whether the communicator has failed. Called from any thread.
    std::function<bool()> has_failed;
  };
  explicit LaneReducers(Setup setup) : setup_(std::move(setup)) {}
  /// Ends the threads. If GPUs may still be waiting for them, the communicator must have failed.
  ~LaneReducers();
  LaneReducers(const LaneReducers&) = delete;
  LaneReducers& operator=(const LaneReducers&) = delete;
  /// Fails with Code::system_error if the system provides no more threads, and with Code::invalid_argument if it does
  /// not have the named cores.
  Status start();

  /// Announces the chunks of a message that this rank's GPU will send once, and wakes the threads. From any thread.
  void expect(const kernels::Message& message);
  /// Announces that from now on chunks may come at any time: graphs may send them whenever they are launched.
  void expect_always();
  /// Ends all waits of the threads. From any thread.
  void abort();
  /// Returns the rank that keeps this rank's GPU waiting for a sum: one whose GPU has not sent its part, has not read
  /// an earlier sum, or whose thread has not added up what has come; nothing if none does. From any thread.
  std::optional<std::uint32_t> awaited_rank() const;

 private:
  /// A lane that this thread serves, and how many of its slots have been used so far.
  struct Lane {
    std::uint32_t number = 0;
    std::uint64_t uses = 0;
  };
  struct Worker;
  Status place(std::jthread& thread) const;
  std::uint32_t thread_of(std::uint32_t lane) const { return lane % (setup_.options.threads * setup_.layout.ranks); }
  bool is_own(std::uint32_t lane) const { return thread_of(lane) / setup_.options.threads == setup_.rank; }
  void work(std::uint32_t index);
  bool serve(Worker& worker);
  bool is_ready(const Lane& lane) const;
  std::uint64_t latest(std::size_t arena, std::uint32_t lane) const;
  std::optional<std::uint32_t> awaited_rank(std::uint32_t lane) const;
  void reduce_chunk(const Lane& lane);
  void add_up(const Sum& sum, std::size_t slot, std::uint32_t bytes) const;
  /// Waits for chunks. Returns false if none will arrive any more.
  bool wait(Worker& worker);
  void nap(const Worker& worker) const;
  /// Returns whether chunks are yet to come, as far as this rank knows.
  bool expects_any() const { return always_ || added_ < expected_; }
  /// Sleeps until woken. Returns false, at once, if the first thread is to go on looking for the others.
  bool sleep(Worker& worker);
  /// Wakes the threads that sleep while their lanes have chunks from this rank's GPU.
  void wake_others();
  bool is_over();
  std::atomic_ref<std::uint64_t> word(std::size_t arena, std::size_t index) const;
  std::atomic_ref<std::uint64_t> flag(std::size_t arena, std::uint32_t lane, std::uint64_t use) const;
  std::atomic_ref<std::uint64_t> returned(std::size_t arena, std::uint32_t reader, std::uint32_t lane) const;

  const Setup setup_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> sleeps_;                 ///< by thread; one that is to wake is set to 0
  std::atomic<std::uint32_t> sleeping_ = 0;  ///< number of threads that sleep
  std::atomic<std::uint64_t> expected_ = 0;  ///< chunks on this rank's lanes that expect() has announced
  std::atomic<std::uint64_t> added_ = 0;     ///< chunks on this rank's lanes that were added up
  std::atomic<bool> always_ = false;         ///< since expect_always()
  std::atomic<bool> stopping_ = false, aborted_ = false;
  std::vector<std::jthread> threads_;  ///< the last member, because the threads use all others
};

}  // namespace strait::cpu_reducers
