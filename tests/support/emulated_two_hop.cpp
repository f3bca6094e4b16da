// Must come first: it replaces CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include "support/emulated_async.hpp"
//
#include <cstdlib>

#include "kernels/bulk_two_hop.cuh"
#include "kernels/piped_kernels.cuh"
#include "kernels/two_hop.cuh"
#include "support/emulated_launch.hpp"

namespace strait::testing {
namespace {

void run_piped(const DeviceLaunch& launch, const kernels::TwoHop& argument, DataType type) {
  if (!launch.reduces) return kernels::piped_two_hop_copy(argument);
  const kernels::KernelType whose = kernels::piped_kernel_type(type, argument.op, argument.ring.averaged);
  visit_kernel_type(whose, [&]<kernels::KernelType kind>() { kernels::piped_two_hop_reduce<kind>(argument); });
}

}  // namespace

void run_thread(const DeviceLaunch& launch, const kernels::TwoHop& argument, DataType type) {
  if (launch.piped) return run_piped(launch, argument, type);
  const bool is_bulk = launch.protocol == kernels::Protocol::bulk;
  if (!launch.reduces)
    return is_bulk ? kernels::bulk_two_hop_copy(argument) : kernels::two_hop_copy<kernels::Packets>(argument);
  visit_kernel_type(type, [&]<kernels::KernelType kind>() {
    is_bulk ? kernels::bulk_two_hop_reduce<kind>(argument)
            : kernels::two_hop_reduce<kernels::Packets, kind, false>(argument);
  });
}

}  // namespace strait::testing
