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

/// A rank's threads that carry out between hosts what its GPU's kernels describe in host memory (kernels/network.hpp).
/// There are so many lanes, each a thread with communicators of host ranks of its own: by one connection, and one
/// thread, goes less than fast networks carry. Round r of a call is a collective of lane r modulo the number of those
/// that the call goes by; messages are a group of each lane's, which goes on as pieces come.
///
/// The first thread hears of calls, and has the others take part in those that are long enough. Idle threads sleep. The
/// first one polls for a short while after a call, for the next may follow, and from when a launch is expected until
/// the GPU has come to it, with naps between looks where that is long, each a small part of what it has waited: in a
/// graph from its first call to its last.
class NetworkProxy {
 public:
  using Among = kernels::NetworkCall::Among;
  struct Setup {
    int rank = -1;                           ///< whose it is, for the log
    kernels::NetworkWords* words = nullptr;  ///< zeroed; kept, as the slots, by the caller until this has ended
    std::byte* slots = nullptr;
    std::uint32_t slot_bytes = 0;
    std::uint32_t lanes = 1;        ///< the same on all ranks
    std::uint32_t exact_lanes = 1;  ///< likewise: of these, for what is not in a wire format
    /// On a lane: a collective of host ranks, from host memory to host memory; until it is done.
    std::function<Status(std::uint32_t lane, Among among, const Call& call)> run;
    /// Likewise, messages among all, by their numbers.
    std::function<Status(std::uint32_t lane, std::span<const Call> messages, MessagePieces& pieces)> run_messages;
    /// While a lane waits for the GPU: takes in what has come to it from other hosts, that it trades with now or did
    /// last.
    std::function<void(std::uint32_t lane, Among among)> take_in = [](std::uint32_t, Among) {};
    /// Whether the communicator has failed.
    std::function<bool()> has_failed;
    /// It has now, unless it had before.
    std::function<void(const Error& error)> fail;
  };
  explicit NetworkProxy(Setup setup) : setup_(std::move(setup)) {}
  ~NetworkProxy() { end(); }
  NetworkProxy(const NetworkProxy&) = delete;
  NetworkProxy& operator=(const NetworkProxy&) = delete;
  /// Code::system_error where there are no threads to be had.
  Status start();
  /// Whether all has been carried out whose kernels may have ended: what is only sent ends its kernel before, what is
  /// awaited after that. From any thread.
  bool is_idle() const;
  /// Until that is so, the communicator has failed, or the deadline. False: the deadline. From any thread.
  bool drain(const Deadline& deadline = Deadline::never()) const;
  /// Likewise, and says so if that was not enough: then the caller ends what the threads are at before it ends them.
  /// Where a process exits and leaves its communicators as they are, that is done then.
  bool finish(const Deadline& deadline = Deadline::after_ms(longest_finish_ms)) const;
  static constexpr std::int64_t longest_finish_ms = 10'000;
  /// Ends the threads; what they are at ends when the communicators of the host ranks do.
  void end();
  /// Before, or when, a stream comes to a launch, or to the first of so many. From any thread.
  void expect(std::uint64_t calls = 1);

 private:
  class Pieces;
  /// A call as the kernel described it, and how many rounds, and pieces of each flow, there were before.
  struct Described {
    kernels::NetworkCall call{};
    std::vector<kernels::Flow> flows;
    std::vector<std::uint64_t> pieces;
    std::uint64_t first_round = 0;
  };
  void lead();
  void help(std::uint32_t lane);
  bool await_call();
  /// Polls. False: the communicator has failed, or this ends. `beside`: is done between looks.
  template <class Condition, class Beside>
  bool await(Condition&& condition, Beside&& beside) const;
  template <class Condition>
  bool await(Condition&& condition) const {
    return await(std::forward<Condition>(condition), [] {});
  }
  void hear();
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
  std::uint64_t expected_ = 0;              ///< calls
  std::uint64_t shared_calls_ = 0;          ///< that all lanes take part in
  std::atomic<std::uint32_t> helping_ = 0;  ///< lanes that are at the last of these
  std::atomic<bool> stopping_ = false;
  std::uint64_t calls_ = 0;  ///< carried out, by the first thread
  Described now_;            ///< not changed while lanes help
  std::mutex finishing_;
  std::uint64_t rounds_ = 0;                             ///< carried out, with all before them
  std::array<bool, kernels::network_depth> finished_{};  ///< of the later ones
  std::vector<std::jthread> threads_;                    ///< by lane; last: they use the rest
};

}  // namespace strait
