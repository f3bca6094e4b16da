#include "kernels/type_kernels.cuh"

namespace strait::kernels {

STRAIT_TYPE_KERNELS(int8)
STRAIT_TYPE_KERNELS(uint8)

}  // namespace strait::kernels
