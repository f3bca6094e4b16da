#pragma once

// Must come first: it replaces CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include <algorithm>

#include "kernels/wire_format.cuh"
#include "launches/device_quantized.hpp"
#include "support/wire_reference.hpp"

/// Runs launches of the kernels of wire_format.cuh on the CPU.
namespace strait::testing {

inline void run_thread(const WireLaunch& launch) {
  visit_wire(launch.format, [&]<WireFormat format>() {
    if (launch.kernel == kernels::WireKernel::recode) return kernels::wire_recode<format>(launch.pass);
    spec::visit(launch.type, [&]<DataType type>() {
      if constexpr (wire::is_wire_type(type)) {
        if (launch.kernel == kernels::WireKernel::encode)
          kernels::wire_encode<format, type>(launch.pass);
        else
          kernels::wire_decode<format, type>(launch.pass);
      }
    });
  });
}

/// Runs a launch with one warp per block and at most two blocks; the kernels work with any number of either.
inline void run(const WireLaunch& launch) {
  const std::uint32_t blocks = std::min(launch.blocks, 2u);
  for (std::uint32_t index = 0; index < blocks; ++index) run_threads(32, blocks, index, 1, [&] { run_thread(launch); });
}

}  // namespace strait::testing
