#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device_arenas.hpp"
#include "device/device_rank.hpp"
#include "launches/device_calls.hpp"
#include "select/cpu_reduce.hpp"

namespace strait {

/// Large all-reduces of GPU ranks through host memory in which CPU threads do the additions (plan `staged`): kernels
/// bring contributions and take the sum, so that each GPU's link carries the message once each way, however many ranks
/// there are. With islands this is done with what crosses between them. Calls in a wire format are carried, too; the
/// link then carries encoded data.
///
/// Kernels tell the threads what to do with each chunk, so graphs may be launched at any time, and calls of graphs and
/// others may follow one another in any order. The host only wakes the threads.
class DeviceReducers {
 public:
  DeviceReducers();
  ~DeviceReducers();
  DeviceReducers(DeviceReducers&&) noexcept;
  DeviceReducers& operator=(DeviceReducers&&) noexcept;
  /// `calls` plans launches over the ring with the threads. If no reducers are wanted, the object carries no calls.
  /// `request` must outlive the object.
  static Result<DeviceReducers> open(const DeviceRank::Request& request, const DeviceArenas& arenas, DeviceCalls calls);
  /// Returns the size from which CPU threads add up exact all-reduces (those without a wire format): as the user says,
  /// otherwise by what is known of the machine (cpu_reduce_border_bytes(), which explains `meeting` and `crossing`). 0:
  /// none.
  static std::size_t least_bytes(const DeviceRank::Request& request, std::size_t meeting, std::size_t crossing,
                                 const ExchangeRates& rates) {
    if (request.ranks == 1) return 0;
    return request.options.cpu_reduce_bytes.value_or(cpu_reduce_border_bytes(
        static_cast<std::uint32_t>(meeting), static_cast<std::uint32_t>(crossing), request.ranks, rates));
  }

  /// Returns whether CPU threads add up a call of the ranks whose contributions meet: all ranks, or with islands those
  /// across. These ranks decide alike.
  bool carries(const Call& call) const;
  /// Has the threads expect the call, and returns its kernel launch. `captures`: the call's stream is being captured. A
  /// call in a wire format is an exchange of DeviceQuantized::steps_by_reducers().
  DeviceLaunch take(const Call& call, bool captures);
  void abort();
  /// Returns the rank that a kernel means that waits for `member` of its ring. If that stands for the threads, it is
  /// the rank for which they wait at this moment; nothing if they wait for none.
  std::optional<std::uint32_t> rank_of(std::uint32_t member) const;

 private:
  DeviceCalls calls_;
  std::size_t least_bytes_ = 0;         ///< least size of exact calls; 0: none are carried
  std::size_t least_wire_bytes_ = 0;    ///< least size of calls in a wire format, before encoding; 0: none
  std::vector<std::uint32_t> members_;  ///< the ranks that meet, by their numbers in the communicator
  std::unique_ptr<cpu_reducers::LaneReducers> threads_;
};

}  // namespace strait
