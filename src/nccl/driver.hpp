#pragma once

#include <cstddef>
#include <string>

/// The few calls of the CUDA driver that the ABI itself needs. libcuda.so.1 is opened at the first use; a machine
/// without it gets an error that says so.
namespace strait::nccl::driver {

/// Empty: well done. Otherwise what failed, and the remedy.
using Problem = std::string;

/// The device of the calling thread's current context; 0, as in the CUDA runtime, where there is none.
Problem current_device(int& device);
/// The number of devices that this process may see.
Problem device_count(int& devices);
/// Memory of the current device, or of device 0.
Problem allocate(void** pointer, std::size_t size_bytes);
Problem free(void* pointer);

}  // namespace strait::nccl::driver
