#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device_arenas.hpp"
#include "device/device_rank.hpp"
#include "launches/device_calls.hpp"
#include "select/cpu_reduce.hpp"

namespace strait {

/// The large all-reduces of GPU ranks that meet in host memory: CPU threads add up what kernels bring, so that each
/// GPU's link carries the message once each way, however many ranks there are (plan staged). Of islands: what crosses.
/// Those in a wire format, too: then what the link carries is encoded.
///
/// The threads must be given calls in the order in which GPUs come to them. Calls run in the order in which they are
/// made, but those of a graph whenever it is launched: there the stream gives them to the threads, by a host function.
/// And since nobody tells when that is, so it does all calls that are made after the first capture.
class DeviceReducers {
 public:
  DeviceReducers();
  ~DeviceReducers();
  DeviceReducers(DeviceReducers&&) noexcept;
  DeviceReducers& operator=(DeviceReducers&&) noexcept;
  /// `calls` go over the ring with the threads. Where no reducers are wanted this carries nothing. `request` outlives
  /// this.
  static Result<DeviceReducers> open(const DeviceRank::Request& request, const DeviceArenas& arenas, DeviceCalls calls);
  /// Of the exact all-reduces for them (cpu_reduce_border_bytes()): as asked for, else by what is known of the machine.
  /// 0: there are none.
  static std::size_t least_bytes(const DeviceRank::Request& request, std::size_t meeting, std::size_t crossing,
                                 const ExchangeRates& rates) {
    if (request.ranks == 1) return 0;
    return request.options.cpu_reduce_bytes.value_or(cpu_reduce_border_bytes(
        static_cast<std::uint32_t>(meeting), static_cast<std::uint32_t>(crossing), request.ranks, rates));
  }

  /// Of a call by the ranks that meet: all, or with islands those across. They decide alike.
  bool carries(const Call& call) const;
  /// Gives the call to the threads; the kernel is to be launched next on the call's stream, which `captures` or not.
  /// Of one in a wire format: an exchange of DeviceQuantized::steps_by_reducers().
  Result<DeviceLaunch> take(const Call& call, bool captures);
  void abort();
  /// For whom the threads were last seen to wait.
  std::uint32_t awaited_rank() const;

 private:
  struct Announcement;
  Status announce(const cpu_reducers::Reduction& reduction, bool captures, void* stream);

  DeviceCalls calls_;
  std::size_t least_bytes_ = 0;         ///< of exact calls; 0: none
  std::size_t least_wire_bytes_ = 0;    ///< likewise of calls in a wire format, before they are encoded
  std::vector<std::uint32_t> members_;  ///< who meets, by their numbers in the communicator
  std::unique_ptr<cpu_reducers::LaneReducers> threads_;
  bool by_streams_ = false;
  std::vector<std::unique_ptr<Announcement>> captured_;  ///< a graph may be launched as long as there are the threads
};

}  // namespace strait
