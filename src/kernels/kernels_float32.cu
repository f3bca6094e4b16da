#include "kernels/type_kernels.cuh"

namespace strait::kernels {

STRAIT_TYPE_KERNELS(float32)
STRAIT_TYPE_KERNELS(float64)

}  // namespace strait::kernels
