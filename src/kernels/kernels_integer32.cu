#include "kernels/type_kernels.cuh"

namespace strait::kernels {

STRAIT_TYPE_KERNELS(int32)
STRAIT_TYPE_KERNELS(uint32)

}  // namespace strait::kernels
