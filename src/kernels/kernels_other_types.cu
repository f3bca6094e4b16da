#include "kernels/type_kernels.cuh"

namespace strait::kernels {

template TypeKernels kernels_of<KernelType::others>();
template TypeKernels::Pair piped_sums_of<DataType::int8>();
template TypeKernels::Pair piped_sums_of<DataType::int32>();
template TypeKernels::Pair piped_sums_of<DataType::int64>();
template TypeKernels::Pair piped_sums_of<DataType::float64>();

}  // namespace strait::kernels
