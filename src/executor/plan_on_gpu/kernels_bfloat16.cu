#include "executor/plan_on_gpu/plan_kernel.cuh"

namespace strait::cuda {

std::span<const Kernel> bfloat16_kernels() {
  static const Kernel kernels[] = {
      kernel<DataType::bfloat16, ReduceOp::sum, Protocol::simple>(),
      kernel<DataType::bfloat16, ReduceOp::sum, Protocol::packet>(),
      kernel<DataType::bfloat16, ReduceOp::avg, Protocol::simple>(),
      kernel<DataType::bfloat16, ReduceOp::avg, Protocol::packet>(),
  };
  return kernels;
}

}  // namespace strait::cuda
