#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "device/p2p_setting.hpp"
#include "executor/cpu_reducers/lane_reducers.hpp"

namespace strait {

/// The settings of GPU ranks: what a program asks for, and otherwise what the environment says (Comm::read_settings()).
struct DeviceOptions {
  std::optional<P2pSetting> p2p;  ///< which GPUs of a host may use P2P; none: STRAIT_P2P
  /// Most thread blocks of an operation, or no_sms. 0: STRAIT_MAX_SMS, or if that is unset as many as pay.
  std::uint32_t max_sms = 0;
  std::size_t lines_bytes = 0;  ///< over NVLink: messages of up to this size go as lines
  /// Over PCIe: messages of up to this size go as packets; unset: by the rates.
  std::optional<std::size_t> packets_bytes;
  std::size_t piped_unit_bytes = 0;   ///< through peers' memory: unit of the lengths from which messages use pipes
  std::size_t host_memory_bytes = 0;  ///< limit of what all communicators of a host pin together, without P2P
  std::size_t copy_engine_bytes = 0;  ///< calls of this size or more use copy engines; 0: few do (DeviceCopies)
  bool copies_messages = true;        ///< whether copy engines may carry sends and receives, too
  std::size_t copy_window_bytes = 0;  ///< GPU memory for the windows of copy engines between GPUs
  cpu_reducers::Options reducers;     ///< CPU reducer threads of each rank that has any (only through host memory)
  /// CPU threads add up all-reduces of this size or more; 0: none; unset: by the rates.
  std::optional<std::size_t> cpu_reduce_bytes;
  bool joins_graphs = true;     ///< graph launches and other calls are ordered (CallOrder::Setup)
  bool orders_launches = true;  ///< kernels of several communicators start in order (LaunchOrder)
  bool aggregates = true;       ///< small collectives of a group may share a launch (device_aggregates.hpp)
};

}  // namespace strait
