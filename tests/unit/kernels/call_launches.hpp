#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/layout.hpp"
#include "launches/device_calls.hpp"

/// Helpers that return how calls of GPUs connected by NVLink are launched.
namespace strait::testing {

inline constexpr std::size_t mb = std::size_t{1} << 20;

inline DeviceCalls calls_of(std::uint32_t ranks, std::uint32_t max_sms, std::size_t piped_unit_bytes = 2 * mb,
                            bool has_async_copies = true, std::uint32_t sms = 0) {
  const auto layout = kernels::arena_layout(kernels::ArenaKind::nvlink, ranks);
  kernels::Ring ring{};
  ring.ranks = ring.averaged = ranks;
  ring.has_async_copies = has_async_copies;
  std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
  DeviceCalls::Options options;
  options.max_sms = max_sms;
  options.flagged_bytes = mb;
  options.piped_unit_bytes = piped_unit_bytes;
  options.sms = sms;
  return {ring, nullptr, options};
}
inline DeviceCalls pair_calls(std::uint32_t max_sms, std::size_t piped_unit_bytes = 2 * mb,
                              bool has_async_copies = true, std::uint32_t sms = 0) {
  return calls_of(2, max_sms, piped_unit_bytes, has_async_copies, sms);
}

/// Returns the only launch of a call. `bytes` is the size of the larger buffer.
inline DeviceLaunch launch_of(const DeviceCalls& calls, Collective collective, std::size_t bytes,
                              DataType type = DataType::bfloat16, std::size_t misaligned_bytes = 0,
                              ReduceOp op = ReduceOp::sum) {
  const bool has_blocks = collective == Collective::all_gather || collective == Collective::all_to_all ||
                          collective == Collective::reduce_scatter;
  Call call;
  call.collective = collective;
  call.type = type;
  call.op = op;
  call.count = bytes / (has_blocks ? calls.ring().ranks : 1) / size_bytes(type);
  call.send = call.receive = reinterpret_cast<std::byte*>((std::uintptr_t{1} << 32) + misaligned_bytes);
  const auto launches = calls.launches_of(call);
  EXPECT_EQ(launches.size(), 1u);
  return launches.at(0);
}

}  // namespace strait::testing
