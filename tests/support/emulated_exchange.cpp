// Must come first: it replaces CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include "support/emulated_async.hpp"
//
#include "kernels/bulk_exchange.cuh"
#include "kernels/bulk_messages.cuh"
#include "kernels/exchange.cuh"
#include "kernels/piped_kernels.cuh"
#include "kernels/prompt.cuh"
#include "kernels/straight.cuh"
#include "support/emulated_launch.hpp"

namespace strait::testing {
namespace {

void run_piped(const DeviceLaunch& launch, const kernels::Exchange& argument, DataType type) {
  if (!launch.reduces) return kernels::piped_exchange_copy(argument);
  const kernels::KernelType whose = kernels::piped_kernel_type(type, argument.op, argument.ring.averaged);
  visit_kernel_type(whose, [&]<kernels::KernelType kind>() { kernels::piped_exchange_reduce<kind>(argument); });
}

void run_prompt(const DeviceLaunch& launch, const kernels::Exchange& argument, DataType type) {
  if (!launch.reduces) return kernels::prompt_exchange_copy<kernels::Packets>(argument);
  visit_kernel_type(type, [&]<kernels::KernelType kind>() {
    constexpr bool has_sums = kind != kernels::KernelType::others;  // as for lines
    argument.op == ReduceOp::sum ? kernels::prompt_exchange_reduce<kernels::Packets, kind, has_sums>(argument)
                                 : kernels::prompt_exchange_reduce<kernels::Packets, kind, false>(argument);
  });
}

}  // namespace

void run_thread(const DeviceLaunch& launch, const kernels::Exchange& argument, DataType type) {
  if (launch.piped) return run_piped(launch, argument, type);
  if (launch.prompt) return run_prompt(launch, argument, type);
  const bool is_bulk = launch.protocol == kernels::Protocol::bulk;
  if (launch.independent)
    return is_bulk ? kernels::bulk_messages(argument) : kernels::exchange_copy<kernels::Packets, true>(argument);
  if (!launch.reduces)
    return is_bulk ? kernels::bulk_exchange_copy(argument) : kernels::exchange_copy<kernels::Packets>(argument);
  visit_kernel_type(type, [&]<kernels::KernelType kind>() {
    is_bulk ? kernels::bulk_exchange_reduce<kind>(argument)
            : kernels::exchange_reduce<kernels::Packets, kind, false>(argument);
  });
}

void run_thread(const DeviceLaunch& /*launch*/, const kernels::StraightExchange& argument, DataType /*type*/) {
  kernels::straight_copy(argument);
}

void run_thread(const DeviceLaunch& /*launch*/, const kernels::OfferedMessages& argument, DataType /*type*/) {
  kernels::offered_messages(argument);
}

}  // namespace strait::testing
