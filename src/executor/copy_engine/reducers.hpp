#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "executor/copy_engine/flags.hpp"
#include "executor/copy_engine/rounds.hpp"

namespace strait::staged {

/// One operation, as this rank's CPU threads must know it.
struct Operation {
  Rounds rounds;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t first_round = 0;
};

/// This rank's CPU threads. Of every round of a reduction each adds up its share of the ranks' upload slots, in rank
/// order, and writes it to the result slot. They sleep until a stream has reached a reduction, and between reductions;
/// while they wait for a chunk they spin for a moment and then nap. They inherit the creating thread's affinity and pin
/// nothing.
class Reducers {
 public:
  /// `has_failed`: whether the communicator has, asked by the threads while they wait. `flags` outlives this.
  Reducers(Flags& flags, std::uint32_t rank, const StagedOptions& options, std::function<bool()> has_failed);
  ~Reducers();
  /// Code::system_error where the system gives no more threads.
  Status start();

  /// The operations of this rank in order; every one is pushed, so that waits can be told of.
  void push(const Operation& operation);
  /// A stream has reached the next operation.
  void begin_next();
  /// Ends the threads' waits, and those of this rank's streams, now and as long as this object lives. From any thread.
  void abort();
  bool is_aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// How long the operation that a stream is at has been under way; nothing if there is none.
  std::optional<std::chrono::milliseconds> running_for();

 private:
  struct Entry {
    Operation operation;
    std::chrono::steady_clock::time_point began{};
  };
  void work(std::uint32_t worker);
  std::optional<Operation> next_operation(std::uint64_t& next);
  void carry_out(const Operation& operation, std::uint32_t worker, std::vector<std::byte>& scratch);
  bool await(std::uint64_t round);
  bool is_ready(std::uint64_t round) const;
  void reduce_share(const Operation& operation, std::uint64_t round, std::uint32_t worker,
                    std::vector<std::byte>& scratch);
  void premultiply_and_reduce(ReduceCall call, std::uint32_t slot, std::size_t first_byte,
                              std::vector<std::byte>& scratch);
  void forget_complete();
  void keep_releasing();

  Flags& flags_;
  const std::uint32_t rank_;
  const StagedOptions options_;
  const std::function<bool()> has_failed_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;      ///< not yet known to be complete
  std::uint64_t first_entry_ = 0;  ///< number of entries_.front() since the beginning
  std::uint64_t begun_ = 0;        ///< operations that a stream has reached
  bool stopping_ = false;
  std::atomic<bool> aborted_ = false;
  std::vector<std::jthread> threads_;  ///< last: they use the rest
};

}  // namespace strait::staged
