#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "device/p2p_setting.hpp"
#include "executor/cpu_reducers/lane_reducers.hpp"

namespace strait {

/// The settings of GPU ranks: what a program asks for, and for the rest what the environment says (read_settings()).
struct DeviceOptions {
  std::optional<P2pSetting> p2p;  ///< how ranks of a host may reach one another; none: STRAIT_P2P
  std::uint32_t max_sms = 0;      ///< thread blocks of an operation, or no_sms; 0: STRAIT_MAX_SMS, then: as many as pay
  std::size_t lines_bytes = 0;    ///< through peers' memory: messages up to this go as lines
  std::optional<std::size_t> packets_bytes;  ///< by PCIe: messages up to this go as packets; unset: by the rates
  std::size_t piped_bytes = 0;               ///< through peers' memory: messages from this on go through pipes
  std::size_t host_memory_bytes = 0;         ///< that all communicators of a host pin together, without P2P
  std::size_t copy_engine_bytes = 0;         ///< calls from this on go through copy engines; 0: few do (DeviceCopies)
  bool copies_messages = true;               ///< copy engines carry sends and receives like other calls
  std::size_t copy_window_bytes = 0;         ///< of a GPU's memory, where copy engines carry chunks between GPUs
  cpu_reducers::Options reducers;            ///< of each rank that has any, through host memory
  /// All-reduces from this on are added up by them; 0: none; unset: by the rates.
  std::optional<std::size_t> cpu_reduce_bytes;
  bool joins_graphs = true;  ///< launches of graphs and other calls come after one another (CallOrder::Setup)
  bool aggregates = true;    ///< small collectives of a group share a launch (aggregates.hpp)
};

}  // namespace strait
