#pragma once

#include <cstdint>
#include <memory>

#include "communicator/device_arenas.hpp"
#include "communicator/device_calls.hpp"
#include "communicator/device_rank.hpp"

namespace strait {

/// The large all-reduces of GPU ranks that meet in host memory: CPU threads add up what kernels bring, so that each
/// GPU's link carries the message once each way, however many ranks there are (plan staged).
class DeviceReducers {
 public:
  DeviceReducers() = default;
  /// `calls` go over the ring with the threads. Where no reducers are wanted this carries nothing. `request` outlives
  /// this.
  static Result<DeviceReducers> open(const DeviceRank::Request& request, const DeviceArenas& arenas, DeviceCalls calls);
  /// Of the all-reduces for them: as asked for, else by what is known of the machine. 0: there are none.
  static std::size_t least_bytes(const DeviceRank::Request& request, const ExchangeRates& rates) {
    if (request.ranks == 1 || request.reducers.threads == 0) return 0;
    return request.cpu_reduce_bytes.value_or(cpu_reduce_border_bytes(request.ranks, rates));
  }

  /// All ranks decide alike, but for calls that one of them captures into a graph: those must not be taken.
  bool carries(const Call& call) const;
  /// Gives the call to the threads; the kernel is to be launched next.
  DeviceLaunch take(const Call& call);
  void abort();
  /// For whom the threads were last seen to wait.
  std::uint32_t awaited_rank() const;

 private:
  DeviceCalls calls_;
  std::size_t least_bytes_ = 0;
  std::unique_ptr<cpu_reducers::LaneReducers> threads_;
};

}  // namespace strait
