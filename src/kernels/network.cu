#include "kernels/network.cuh"

namespace strait::kernels {

const void* network_exchange_kernel() { return reinterpret_cast<const void*>(&network_exchange<>); }

}  // namespace strait::kernels
