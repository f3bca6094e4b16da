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

/// A reduction of all ranks whose result all have. `message`: how each GPU cuts what it sends, and what comes back.
/// With a `wire` format that is encoded runs (ReducerMemory::run_blocks), and their sum is encoded again.
struct Reduction {
  DataType type = DataType::float32;  ///< of what is brought as it is
  ReduceOp op = ReduceOp::sum;
  WireFormat wire = WireFormat::off;
  kernels::Message message{};
};

struct Options {
  std::uint32_t threads = 4;  ///< of a rank
  /// How long a thread polls for a chunk before it sleeps or naps between looks: some twenty times what a round of
  /// chunks takes where all is well, for a nap can cost a virtual machine half a millisecond, and all wait for the
  /// last.
  std::uint32_t spin_us = 2000;
  std::uint32_t nap_us = 30;         ///< the first nap; naps grow to ten times that
  std::vector<std::uint32_t> cores;  ///< on which the threads of this rank may run; none: as the creating thread
  Simd simd = best_simd();
};

/// One rank's share of the CPU threads that are a rank to every GPU of the host (ReducerMemory): thread t of all has
/// the lanes t, t + threads, and so on. Of a lane it adds up the ranks' chunks, in rank order and with one rounding, as
/// soon as all are there, and while they are in the cache. What comes in a wire format leaves in it.
///
/// The threads sleep between reductions. They wake when one is pushed, and poll while chunks come. Where a reduction is
/// long to begin, because its GPU is at something else, one of them goes on looking, in naps, and the others sleep.
/// Unless cores are named they inherit the creating thread's affinity and pin nothing.
class LaneReducers {
 public:
  struct Setup {
    std::byte* memory = nullptr;  ///< zeroed before the first rank opens it; kept by the caller
    ReducerMemory layout;
    std::uint32_t rank = 0;      ///< of the layout's
    std::uint32_t averaged = 0;  ///< how many ranks' contributions an average divides by
    Options options;
    /// Whether the communicator has failed; from any thread.
    std::function<bool()> has_failed;
  };
  explicit LaneReducers(Setup setup) : setup_(std::move(setup)) {}
  /// Ends the threads. Where GPUs may still wait for them the communicator has failed.
  ~LaneReducers();
  LaneReducers(const LaneReducers&) = delete;
  LaneReducers& operator=(const LaneReducers&) = delete;
  /// Code::system_error where the system gives no more threads; Code::invalid_argument where it has none of the cores.
  Status start();

  /// Before the GPU is given its part. All ranks push the same reductions in the same order.
  void push(const Reduction& reduction);
  /// Ends what the threads wait for. From any thread.
  void abort();
  /// Of the other ranks, the one whose GPU has brought least. From any thread.
  std::uint32_t awaited_rank() const;

 private:
  /// A lane of this thread's, and how many of its slots have been used.
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
  void reduce_chunk(const Reduction& reduction, const Lane& lane, std::uint32_t bytes);
  void add_up(const Reduction& reduction, std::size_t slot, std::uint32_t bytes) const;
  /// False: nothing more will come.
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
  std::deque<Reduction> reductions_;  ///< not yet taken by all threads
  std::vector<std::uint64_t> taken_;  ///< by thread
  std::uint64_t first_ = 0;           ///< number of reductions_.front() since the beginning
  std::uint64_t begun_ = 0;           ///< reductions that this rank's GPU is known to have begun
  std::atomic<bool> stopping_ = false, aborted_ = false;
  std::vector<std::jthread> threads_;  ///< last: they use the rest
};

}  // namespace strait::cpu_reducers
