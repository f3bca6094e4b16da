#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "calls/call.hpp"
#include "kernels/wire_format.hpp"

namespace strait {

/// One launch of a kernel of kernels/wire_format.hpp.
struct WireLaunch {
  kernels::WireKernel kernel = kernels::WireKernel::encode;
  WireFormat format = WireFormat::int8;
  DataType type = DataType::float32;
  kernels::WirePass pass{};
  std::uint32_t blocks = 0;  ///< thread blocks, each of kernels::wire_threads threads
};

/// A launch, or a call that exchanges encoded runs as bytes in scratch.
using QuantizedStep = std::variant<WireLaunch, Call>;

/// Determines how GPU ranks carry out calls in a wire format, with the bits that docs/wire-formats.md specifies. As
/// QuantizedCall does for host ranks, it combines kernels that encode, ordinary exchanges of bytes, and kernels that
/// add up and decode, all in scratch of fixed size. Longer calls take several turns. A pure function of the call and of
/// what all ranks know alike.
class DeviceQuantized {
 public:
  /// Size of the scratch in this device's memory: one half for runs that are sent, the other for those that are
  /// received.
  static constexpr std::size_t scratch_bytes = std::size_t{48} << 20;

  DeviceQuantized() = default;
  /// `ranks` ranks make a call together; averages divide by `averaged`. `scratch`: `size_bytes` of this device's
  /// memory, aligned to 16 bytes, at least 512 for each rank. `max_sms`: limit of thread blocks, or no_sms; 0: as many
  /// as pay.
  DeviceQuantized(std::uint32_t rank, std::uint32_t ranks, std::uint32_t averaged, std::byte* scratch,
                  std::size_t size_bytes, std::uint32_t max_sms);

  /// Returns the steps of a call, for one stream, in order. The call must have a wire format and a count, and there
  /// must be more than one rank.
  std::vector<QuantizedStep> steps_of(const Call& call) const;
  /// Returns the steps of an all-reduce that CPU threads add up. Their part is an exchange step: an all-reduce of
  /// encoded runs, in place.
  std::vector<QuantizedStep> steps_by_reducers(const Call& call) const;

 private:
  struct Turn;
  std::size_t turn_elements(const Call& call) const;
  Turn turn_of(const Call& call, std::size_t first) const;
  kernels::WirePass user_runs(const Call& call, const Turn& turn, const void* buffer, std::uint32_t runs) const;
  QuantizedStep encode(const Call& call, const Turn& turn, std::uint32_t runs) const;
  QuantizedStep sum_own(const Call& call, const Turn& turn) const;
  QuantizedStep decode(const Call& call, const Turn& turn, std::byte* encoded, std::uint32_t runs) const;
  QuantizedStep launch(kernels::WireKernel kernel, const Call& call, const kernels::WirePass& pass) const;

  std::uint32_t rank_ = 0;
  std::uint32_t ranks_ = 1;
  std::uint32_t averaged_ = 1;
  std::byte* sent_ = nullptr;  ///< one run for each rank
  std::byte* received_ = nullptr;
  std::size_t run_limit_bytes_ = 0;
  std::size_t scratch_bytes_ = 0;  ///< size from sent_ on, including received_
  std::uint32_t max_blocks_ = 0;
};

}  // namespace strait
