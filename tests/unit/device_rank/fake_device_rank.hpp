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

/// A stand-in for DeviceRank without a GPU: ranks carry nothing out, and fail on demand.
namespace strait::testing {

struct FakeGpu {
  std::string launch_error;  ///< error of every launch; "": launches succeed
  std::atomic<bool> captures{false};
  std::atomic<int> capturing_rank{-1};        ///< only this rank captures
  std::uintptr_t capturing_stream = 0;        ///< only this stream captures
  std::uintptr_t other_capturing_stream = 0;  ///< this one captures, too, into another graph
  std::uintptr_t bad_stream = 0;              ///< a stream whose state cannot be queried
  Code bad_because = Code::invalid_usage;     ///< the error of that query
  std::atomic<bool> looks_at_peers{false};    ///< before each launch ranks examine peers, as attendants do
  std::atomic<int> idle{-1};                  ///< what is_idle() returns: 1, 0, or -1 for unknown
  std::atomic<int> launches{0};
  std::atomic<std::size_t> aggregates{1};  ///< number of collectives of a group that go into one launch
  std::atomic<std::size_t> wire_pays_bytes{0};
  bool logs = false;
  std::vector<std::string> log;  ///< what the ranks of one thread do: "<rank>: <call>"
  bool asks_for_rates = false;   ///< ranks ask for exchange rates when a communicator is made
  std::atomic<int> looks{0};     ///< how often the links of the GPUs were looked up; each lookup finds another rate
  /// Stands for the copies by which ranks measure; empty: they measure nothing.
  std::function<Result<std::chrono::nanoseconds>(const DeviceRank::Request& request, std::size_t bytes)> copy;
  /// What else ranks do when a communicator is made; empty: nothing.
  std::function<Status(const DeviceRank::Request& request)> on_open;
  /// What a rank of several hosts does when it would be opened; empty: it reports that there are no such ranks.
  std::function<Status(const HostsRequest& request)> on_open_hosts;
  bool stages = false;                      ///< ranks agree on their pinned host memory, and keep it
  std::array<std::size_t, 4> staged_for{};  ///< by rank: the bytes that they agreed on
  bool agrees = false;                      ///< when a communicator is made, ranks agree that all can use their GPUs
  std::atomic<int> opening{0};              ///< number of ranks that have begun to open their GPU
  std::atomic<int> late_rank{-1};           ///< a rank that does not get beyond that
  int refusing_rank = -1;                   ///< a rank that cannot register memory
  std::atomic<int> registrations{0};
  int rank_without_memory = -1;               ///< a rank that runs out of memory after all have agreed to register some
  std::array<std::uint64_t, 4> registered{};  ///< by rank: the number of the last registration
  std::atomic<bool> has_attendants{false};    ///< attendant threads watch started calls and peers
  /// By rank: what GPUs have started, and whether their kernels wait. For tests of started calls.
  std::array<kernels::LaunchCounts, 4> counts{};
  std::array<kernels::Mailbox, 4> mailboxes{};
  std::array<std::atomic<int>, 4> reads{};  ///< by rank: how often the counts were read
};
inline FakeGpu fake_gpu;

}  // namespace strait::testing
