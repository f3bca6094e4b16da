#include "kernels/type_kernels.cuh"

namespace strait::kernels {

template TypeKernels kernels_of<KernelType::float16>();

}  // namespace strait::kernels
