#pragma once

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

#include "base/error.hpp"
#include "communicator/call.hpp"
#include "executor/host/host_program.hpp"
#include "kernels/network.hpp"

namespace strait {

/// A rank's thread that carries out between hosts what its GPU's kernels describe in host memory (kernels/network.hpp):
/// each round as a collective of host ranks, messages as a group that goes on as pieces come. It sleeps while nothing
/// is expected, polls from then on until the GPU has come to it, and naps between looks where that is long.
class NetworkProxy {
 public:
  using Among = kernels::NetworkCall::Among;
  struct Setup {
    kernels::NetworkWords* words = nullptr;  ///< zeroed; kept, as the slots, by the caller until this has ended
    std::byte* slots = nullptr;
    std::uint32_t slot_bytes = 0;
    /// A collective of host ranks, from host memory to host memory; until it is done.
    std::function<Status(Among among, const Call& call)> run;
    /// Likewise, messages among all, by their numbers.
    std::function<Status(std::span<const Call> messages, MessagePieces& pieces)> run_messages;
    /// Whether the communicator has failed.
    std::function<bool()> has_failed;
    /// It has now, unless it had before.
    std::function<void(const Error& error)> fail;
  };
  explicit NetworkProxy(Setup setup) : setup_(std::move(setup)) {}
  ~NetworkProxy() { end(); }
  NetworkProxy(const NetworkProxy&) = delete;
  NetworkProxy& operator=(const NetworkProxy&) = delete;
  /// Code::system_error where there is no thread to be had.
  Status start();
  /// Ends the thread; what it is at ends when the communicator of the host ranks does.
  void end();
  /// Before, or when, a stream comes to a launch. From any thread.
  void expect();

 private:
  class Pieces;
  void work();
  bool await_expected();
  /// Polls. False: the communicator has failed, or this ends.
  template <class Condition>
  bool await(Condition&& condition) const;
  Status carry_out();
  Status carry_out_messages(std::span<const kernels::Flow> flows);
  Call call_of_round(const kernels::NetworkCall& call, std::span<const kernels::Flow> flows, std::uint32_t round) const;
  bool is_over() const { return stopping_ || setup_.has_failed(); }

  const Setup setup_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t expected_ = 0;
  std::atomic<bool> stopping_ = false;
  std::uint64_t calls_ = 0, rounds_ = 0;  ///< carried out
  std::vector<std::uint64_t> pieces_ =    ///< likewise, by place of the flow
      std::vector<std::uint64_t>(kernels::max_flows);
  std::jthread thread_;  ///< last: it uses the rest
};

}  // namespace strait
