#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "communicator/hosts_request.hpp"
#include "device/device_rank.hpp"
#include "kernels/launch.hpp"

/// GPU ranks of no GPU: they carry nothing out, and fail on demand.
namespace strait::testing {

struct FakeGpu {
  std::string launch_error;  ///< of the next launches; "": they succeed
  std::atomic<bool> captures{false};
  std::atomic<int> capturing_rank{-1};        ///< that captures alone
  std::uintptr_t capturing_stream = 0;        ///< likewise
  std::uintptr_t other_capturing_stream = 0;  ///< into another graph
  std::uintptr_t bad_stream = 0;              ///< that cannot be looked at,
  Code bad_because = Code::invalid_usage;     ///< for this
  std::atomic<bool> looks_at_peers{false};    ///< what a rank's attendant does now and then, before each launch
  std::atomic<int> idle{-1};                  ///< 1, 0, or -1: unknown
  std::atomic<int> launches{0};
  std::atomic<std::size_t> aggregates{1};  ///< so many of a group's collectives go in one launch
  std::atomic<std::size_t> wire_pays_bytes{0};
  bool logs = false;
  std::vector<std::string> log;  ///< what ranks of one thread do: "<rank>: <call>"
  bool asks_for_rates = false;   ///< when a communicator is made
  std::atomic<int> looks{0};     ///< at what joins the GPUs: each sees something else
  /// Stands for what ranks measure; none: they measure nothing.
  std::function<Result<std::chrono::nanoseconds>(const DeviceRank::Request& request, std::size_t bytes)> copy;
  /// What else ranks do when a communicator is made; none: nothing.
  std::function<Status(const DeviceRank::Request& request)> on_open;
  /// What a rank among several hosts does instead of being made; none: it says that there are none.
  std::function<Status(const HostsRequest& request)> on_open_hosts;
  bool stages = false;                      ///< ranks agree on their host memory, and keep it
  std::array<std::size_t, 4> staged_for{};  ///< by rank: what they agreed on
  bool agrees = false;                      ///< when a communicator is made, that all are well
  std::atomic<int> opening{0};              ///< ranks that have got so far
  std::atomic<int> late_rank{-1};           ///< that stays there
  int refusing_rank = -1;                   ///< that cannot register memory
  std::atomic<int> registrations{0};
  int rank_without_memory = -1;               ///< when all have agreed to register some
  std::array<std::uint64_t, 4> registered{};  ///< by rank: the last one's number
  std::atomic<bool> has_attendants{false};    ///< ranks look at what their GPUs have started, and at their peers
  /// What GPUs have started, and whether their kernels wait, by rank: for tests that start calls.
  std::array<kernels::LaunchCounts, 4> counts{};
  std::array<kernels::Mailbox, 4> mailboxes{};
  std::array<std::atomic<int>, 4> reads{};  ///< by rank: how often the counts were read
};
inline FakeGpu fake_gpu;

}  // namespace strait::testing
