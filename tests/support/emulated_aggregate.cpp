// Must come first: it replaces CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include <algorithm>

#include "kernels/aggregate.cuh"
#include "support/emulated_launch.hpp"

namespace strait::testing {
namespace {

template <class P>
void run_thread(const AggregateLaunch& launch) {
  if (!launch.reduces) return kernels::aggregate_copy<P>(launch.argument);
  visit_kernel_type(launch.type,
                    [&]<kernels::KernelType kind>() { kernels::aggregate_reduce<P, kind>(launch.argument); });
}

}  // namespace

void run_block(const AggregateLaunch& launch, std::uint32_t index, std::uint32_t seed) {
  run_threads(std::min(launch.threads, 128u), launch.blocks, index, seed, [&] {
    launch.protocol == kernels::Protocol::bulk ? run_thread<kernels::Bulk>(launch)
                                               : run_thread<kernels::Packets>(launch);
  });
}

}  // namespace strait::testing
