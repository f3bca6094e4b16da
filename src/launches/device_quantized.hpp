#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "calls/call.hpp"
#include "kernels/wire_format.hpp"

namespace strait {

/// One launch of a kernel of src/kernels/wire_format.hpp.
struct WireLaunch {
  kernels::WireKernel kernel = kernels::WireKernel::encode;
  WireFormat format = WireFormat::int8;
  DataType type = DataType::float32;
  kernels::WirePass pass{};
  std::uint32_t blocks = 0;  ///< thread blocks, of kernels::wire_threads
};

/// A launch; or a call that exchanges encoded runs, as bytes in scratch.
using QuantizedStep = std::variant<WireLaunch, Call>;

/// How GPU ranks carry out calls in a wire format, with the bits of docs/wire-formats.md: as QuantizedCall does on host
/// ranks, by kernels that encode, ordinary exchanges of bytes, and kernels that add up and decode, all in scratch of a
/// fixed size. Longer calls take several turns. A pure function of the call and of what all ranks know alike.
class DeviceQuantized {
 public:
  /// This device's scratch for runs that are sent, and as much for those that are received.
  static constexpr std::size_t scratch_bytes = std::size_t{48} << 20;

  DeviceQuantized() = default;
  /// `ranks` make a call together; averages divide by `averaged`. `scratch`: `size_bytes` of this device's memory,
  /// aligned to 16 bytes; at least 512 a rank. `max_sms`: thread blocks at most, or no_sms; 0: as many
  /// as pay.
  DeviceQuantized(std::uint32_t rank, std::uint32_t ranks, std::uint32_t averaged, std::byte* scratch,
                  std::size_t size_bytes, std::uint32_t max_sms);

  /// `call` has a wire format and a count, and there is more than one rank. The steps are one stream's, in order.
  std::vector<QuantizedStep> steps_of(const Call& call) const;
  /// An all-reduce that CPU threads add up: their part is an exchange that is an all-reduce of encoded runs, in place.
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
  std::byte* sent_ = nullptr;  ///< a run for each rank
  std::byte* received_ = nullptr;
  std::size_t run_limit_bytes_ = 0;
  std::size_t scratch_bytes_ = 0;  ///< from sent_ on, received_ among them
  std::uint32_t max_blocks_ = 0;
};

}  // namespace strait
