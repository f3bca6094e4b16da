#include "kernels/type_kernels.cuh"

namespace strait::kernels {

template TypeKernels kernels_of<KernelType::bfloat16>();

}  // namespace strait::kernels
