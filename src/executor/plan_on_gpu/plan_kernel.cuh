#pragma once

#include "executor/plan_on_gpu/gpu_machine.cuh"
#include "executor/plan_on_gpu/kernels.hpp"

namespace strait::cuda {

template <DataType type, ReduceOp op, Protocol protocol>
__global__ void __launch_bounds__(max_threads, 1) plan_kernel(const __grid_constant__ Launch launch) {
  __shared__ BlockMemory memory;
  using Machine = GpuMachine<protocol == Protocol::simple ? max_threads : 0>;
  Machine machine;
  Interpreter<Machine, type, op, protocol>(machine, launch, memory, blockIdx.x).run();
}

template <DataType type, ReduceOp op, Protocol protocol>
Kernel kernel() {
  return {type, op, protocol, reinterpret_cast<const void*>(&plan_kernel<type, op, protocol>)};
}

}  // namespace strait::cuda
