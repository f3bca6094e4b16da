#include "kernels/type_kernels.cuh"

namespace strait::kernels {

STRAIT_TYPE_KERNELS(float8_e4m3)
STRAIT_TYPE_KERNELS(float8_e5m2)

}  // namespace strait::kernels
