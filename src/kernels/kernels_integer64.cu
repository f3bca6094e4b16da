#include "kernels/type_kernels.cuh"

namespace strait::kernels {

STRAIT_TYPE_KERNELS(int64)
STRAIT_TYPE_KERNELS(uint64)

}  // namespace strait::kernels
