#include "kernels/type_kernels.cuh"

namespace strait::kernels {

template TypeKernels kernels_of<KernelType::float16>();
template TypeKernels::Pair piped_sums_of<DataType::float16>();

}  // namespace strait::kernels
