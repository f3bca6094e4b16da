#include "executor/plan_on_gpu/plan_kernel.cuh"

namespace strait::cuda {

std::span<const Kernel> float16_kernels() {
  static const Kernel kernels[] = {
      kernel<DataType::float16, ReduceOp::sum, Protocol::simple>(),
      kernel<DataType::float16, ReduceOp::sum, Protocol::packet>(),
  };
  return kernels;
}

}  // namespace strait::cuda
