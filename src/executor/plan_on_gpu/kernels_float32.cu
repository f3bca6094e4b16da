#include "executor/plan_on_gpu/plan_kernel.cuh"

namespace strait::cuda {

std::span<const Kernel> float32_kernels() {
  static const Kernel kernels[] = {
      kernel<DataType::float32, ReduceOp::sum, Protocol::simple>(),
      kernel<DataType::float32, ReduceOp::sum, Protocol::packet>(),
      kernel<DataType::float32, ReduceOp::max, Protocol::simple>(),
      kernel<DataType::float32, ReduceOp::max, Protocol::packet>(),
  };
  return kernels;
}

}  // namespace strait::cuda
