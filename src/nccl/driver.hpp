#pragma once

#include <cstddef>
#include <string>

/// The few CUDA driver functions that the ABI itself needs. libcuda.so.1 is opened at the first call; without it, every
/// function returns an error that says so.
namespace strait::nccl::driver {

/// Empty on success; otherwise what failed, and where possible the remedy.
using Problem = std::string;

/// Gets the device of the calling thread's current context; 0 if there is none, as in the CUDA runtime.
Problem current_device(int& device);
/// Gets the number of devices visible to this process.
Problem device_count(int& devices);
/// Allocates memory of the current device, or of device 0 if the thread has no current context.
Problem allocate(void** pointer, std::size_t size_bytes);
Problem free(void* pointer);

}  // namespace strait::nccl::driver
