#include "kernels/type_kernels.cuh"

namespace strait::kernels {

template TypeKernels kernels_of<KernelType::bfloat16>();
template TypeKernels::Pair piped_sums_of<DataType::bfloat16>();

}  // namespace strait::kernels
