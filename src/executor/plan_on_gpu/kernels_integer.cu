#include "executor/plan_on_gpu/plan_kernel.cuh"

namespace strait::cuda {

std::span<const Kernel> integer_kernels() {
  static const Kernel kernels[] = {
      kernel<DataType::int8, ReduceOp::sum, Protocol::simple>(),
      kernel<DataType::int8, ReduceOp::sum, Protocol::packet>(),
      kernel<DataType::int32, ReduceOp::sum, Protocol::simple>(),
      kernel<DataType::int32, ReduceOp::sum, Protocol::packet>(),
      kernel<DataType::int64, ReduceOp::sum, Protocol::simple>(),
      kernel<DataType::int64, ReduceOp::sum, Protocol::packet>(),
  };
  return kernels;
}

}  // namespace strait::cuda
