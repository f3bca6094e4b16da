#include "kernels/type_kernels.cuh"

namespace strait::kernels {

STRAIT_TYPE_KERNELS(float16)
STRAIT_TYPE_KERNELS(bfloat16)

}  // namespace strait::kernels
