#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
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

/// A reduction over all ranks whose result all ranks receive. `message` describes how each GPU cuts what it sends and
/// what it receives. With a `wire` format each GPU sends encoded runs (ReducerMemory::run_blocks), and the sum is
/// encoded again.
struct Reduction {
  DataType type = DataType::float32;  ///< of the elements, if they are not encoded
  ReduceOp op = ReduceOp::sum;
  WireFormat wire = WireFormat::off;
  kernels::Message message{};
};

struct Options {
  std::uint32_t threads = 4;  ///< number of threads of a rank
  /// How long a thread polls for a chunk before it sleeps or naps between polls: about twenty times as long as a round
  /// of chunks takes if all is well. A nap can take half a millisecond in a virtual machine, and all ranks wait for the
  /// slowest thread.
  std::uint32_t spin_us = 2000;
  std::uint32_t nap_us = 30;  ///< the first nap; naps grow to ten times that
  /// Cores on which the threads of this rank may run; empty: they inherit the affinity of the creating thread.
  std::vector<std::uint32_t> cores;
  Simd simd = best_simd();
};

/// One rank's share of the CPU threads that act as a rank towards every GPU of the host (ReducerMemory). Of all ranks'
/// threads together, thread t serves the lanes t, t + threads, and so on. On each lane it adds up the ranks' chunks, in
/// rank order and with one rounding, as soon as all of them have arrived and while they are in the cache. If they
/// arrive in a wire format, the sum is encoded in it.
///
/// The threads sleep between reductions. They wake when one is pushed, and poll while chunks arrive. If a reduction
/// does not begin for a long time, because its GPU is busy with other work, one thread continues to poll, with naps,
/// and the others sleep. Unless cores are named, they inherit the creating thread's affinity and are not pinned.
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

  /// Announces a reduction, before the GPU gets its part of it. All ranks push the same reductions in the same order.
  void push(const Reduction& reduction);
  /// Ends all waits of the threads. From any thread.
  void abort();
  /// Returns the rank that keeps this rank's GPU waiting for a sum: one whose GPU has not sent its part, has not read
  /// an earlier sum, or whose thread has not added up what has come; nothing if none does. From any thread.
  std::optional<std::uint32_t> awaited_rank() const;

 private:
  /// A lane that this thread serves, and how many of its slots have been used so far.
  struct Lane {
    std::uint32_t number = 0;
    std::uint32_t round = 0;
    std::uint64_t uses = 0;
  };
  struct Worker;
  Status place(std::jthread& thread) const;
  void work(std::uint32_t index);
  std::optional<Reduction> next(std::uint64_t number);
  bool carry_out(Worker& worker);
  bool is_ready(const Lane& lane, std::uint16_t call_hash) const;
  std::uint64_t latest(std::size_t arena, std::uint32_t lane) const;
  std::optional<std::uint32_t> awaited_rank(std::uint32_t lane) const;
  void reduce_chunk(const Reduction& reduction, const Lane& lane, std::uint32_t bytes);
  void add_up(const Reduction& reduction, std::size_t slot, std::uint32_t bytes) const;
  /// Waits for chunks. Returns false if none will arrive any more.
  bool wait(Worker& worker);
  bool has_work(const Worker& worker) const;
  bool has_begun(const Worker& worker);
  void note_begun(std::uint64_t number);
  bool wait_until_begun(const Worker& worker);
  bool is_over();
  std::atomic_ref<std::uint64_t> flag(std::size_t arena, std::uint32_t lane, std::uint64_t use) const;
  std::atomic_ref<std::uint64_t> returned(std::size_t arena, std::uint32_t reader, std::uint32_t lane) const;

  const Setup setup_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Reduction> reductions_;     ///< those that not all threads have finished
  std::vector<std::uint64_t> finished_;  ///< by thread: number of finished reductions
  std::uint64_t first_ = 0;              ///< number of reductions_.front(), counted from the beginning
  std::uint64_t begun_ = 0;              ///< number of reductions that this rank's GPU is known to have begun
  std::atomic<bool> stopping_ = false, aborted_ = false;
  std::vector<std::jthread> threads_;  ///< the last member, because the threads use all others
};

}  // namespace strait::cpu_reducers
