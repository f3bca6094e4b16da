#include "kernels/network.cuh"
#include "kernels/network_messages.cuh"

namespace strait::kernels {

const void* network_exchange_kernel() { return reinterpret_cast<const void*>(&network_exchange<>); }
const void* network_messages_kernel() { return reinterpret_cast<const void*>(&network_messages<>); }

}  // namespace strait::kernels
