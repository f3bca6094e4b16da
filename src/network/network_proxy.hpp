#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "calls/call.hpp"
#include "executor/host/host_program.hpp"
#include "kernels/network.hpp"

namespace strait {

/// A rank's host threads, which exchange with other hosts the data that the GPU's kernels place and describe in host
/// memory (kernels/network.hpp). There are several lanes, each a thread with its own communicators of host ranks,
/// because one thread with one connection does not saturate a fast network. Round r of a call is a collective on lane r
/// modulo the number of lanes that the call uses. The messages of a call form a group on each lane, which progresses as
/// pieces become available.
///
/// The first thread reads the calls, and wakes the others for those that are long enough. Idle threads sleep. The first
/// thread polls for a short time after each call, because another may follow. It also polls from the moment when a
/// launch is expected until the GPU gets to it (for a graph, from its first call to its last). If that takes long, it
/// naps between polls, each time for a small fraction of the time that it has waited.
class NetworkProxy {
 public:
  using Among = kernels::NetworkCall::Among;
  struct Setup {
    int rank = -1;  ///< this rank, for the log
    /// Zeroed by the caller, who keeps it, like the slots, until this object has ended.
    kernels::NetworkWords* words = nullptr;
    std::byte* slots = nullptr;
    std::uint32_t slot_bytes = 0;
    std::uint32_t lanes = 1;  ///< number of lanes, the same on all ranks
    /// How many of them calls without a wire format use, the same on all ranks.
    std::uint32_t exact_lanes = 1;
    /// Runs a collective of host ranks on a lane, from host memory to host memory, until it is done.
    std::function<Status(std::uint32_t lane, Among among, const Call& call)> run;
    /// Runs sends and receives among all ranks on a lane until they are done. `pieces` numbers them as `messages` does.
    std::function<Status(std::uint32_t lane, std::span<const Call> messages, MessagePieces& pieces)> run_messages;
    /// Called while a lane waits for the GPU: receives what other hosts have already sent to the lane's communicator
    /// `among`, which is the one it uses now or used last.
    std::function<void(std::uint32_t lane, Among among)> receive_early = [](std::uint32_t, Among) {};
    /// Returns whether the communicator has failed.
    std::function<bool()> has_failed;
    /// Makes the communicator fail with this error, unless it has failed before.
    std::function<void(const Error& error)> fail;
  };
  explicit NetworkProxy(Setup setup) : setup_(std::move(setup)) {}
  ~NetworkProxy() { end(); }
  NetworkProxy(const NetworkProxy&) = delete;
  NetworkProxy& operator=(const NetworkProxy&) = delete;
  /// Starts the threads. Fails with Code::system_error if the system provides none.
  Status start();
  /// Returns whether everything has been carried out, except possibly one call whose kernel is still running: the
  /// kernel of a call that only sends may end before the data has been sent, a kernel that awaits data ends afterwards.
  /// From any thread.
  bool is_idle() const;
  /// Waits until is_idle(), the communicator fails, or the deadline passes. Returns false in the last case. From any
  /// thread.
  bool drain(const Deadline& deadline = Deadline::never()) const;
  /// Like drain(), but logs a warning if the deadline passes. In that case the caller must make the calls that the
  /// threads execute end before it calls end(). At process exit this is called for all proxies that still exist.
  bool finish(const Deadline& deadline = Deadline::after_ms(longest_finish_ms)) const;
  static constexpr std::int64_t longest_finish_ms = 10'000;
  /// Ends and joins the threads. A call that a thread executes ends when the host ranks' communicators fail or end.
  void end();
  /// Announces `calls` launches, so that the first thread polls for them. Called before, or when, a stream gets to the
  /// first of them. From any thread.
  void expect(std::uint64_t calls = 1);

 private:
  class Pieces;
  /// A call as its kernel described it, with the number of rounds and, by flow, of pieces before it.
  struct Described {
    kernels::NetworkCall call{};
    std::vector<kernels::Flow> flows;
    std::vector<std::uint64_t> pieces;
    std::uint64_t first_round = 0;
  };
  void run_first_lane();
  void run_lane(std::uint32_t lane);
  bool await_call();
  /// Polls until the condition holds and returns true, or returns false if the communicator fails or the threads are to
  /// end. Calls `beside` between polls.
  template <class Condition, class Beside>
  bool await(Condition&& condition, Beside&& beside) const;
  template <class Condition>
  bool await(Condition&& condition) const {
    return await(std::forward<Condition>(condition), [] {});
  }
  void read_description();
  Status carry_out_together();
  Status carry_out(std::uint32_t lane);
  std::uint32_t lanes_of_call() const { return now_.call.wire == WireFormat::off ? setup_.exact_lanes : setup_.lanes; }
  Status carry_out_messages(std::uint32_t lane) const;
  void finish_round(std::uint64_t round);
  Call call_of_round(std::uint32_t round) const;
  float* bring_residual(std::uint64_t round, std::size_t count) const;
  bool is_over() const { return stopping_ || setup_.has_failed(); }

  const Setup setup_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t expected_ = 0;                 ///< calls announced by expect()
  std::uint64_t shared_calls_ = 0;             ///< calls so far in which all lanes take part
  std::atomic<std::uint32_t> busy_lanes_ = 0;  ///< lanes that have not finished the latest of these
  std::atomic<bool> stopping_ = false;
  std::uint64_t calls_ = 0;  ///< calls carried out, counted by the first thread
  Described now_;            ///< constant while other lanes work on it
  std::mutex finishing_;
  std::uint64_t rounds_ = 0;  ///< number of the first round that has not been carried out
  /// By round modulo the depth: later rounds that have been carried out already.
  std::array<bool, kernels::network_depth> finished_{};
  std::vector<std::jthread> threads_;  ///< by lane; the last member, because the threads use all others
};

}  // namespace strait
