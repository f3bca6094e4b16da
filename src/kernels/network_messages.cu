#include "kernels/network_messages.cuh"

#include "kernels/network.hpp"

namespace strait::kernels {

const void* network_messages_kernel() { return reinterpret_cast<const void*>(&network_messages<>); }

}  // namespace strait::kernels
