#pragma once

#include <cstddef>

#include "base/error.hpp"

namespace strait {

/// Allocates memory of a device that peers' GPUs can map (straitMemAllocDevice). Code::unsupported without CUDA.
Result<void*> allocate_device_memory(int device, std::size_t bytes);
/// Frees such memory. Returns false if `pointer` was not allocated there.
bool free_device_memory(void* pointer);

}  // namespace strait
