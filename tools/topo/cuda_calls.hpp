#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "topo/cuda_driver.hpp"

namespace strait::topo {

/// The functions of the CUDA driver that are used here. They are declared by hand as part of the driver's ABI, because
/// not every machine has cuda.h.
struct CudaDriver::Calls {
  int (*init)(unsigned) = nullptr;
  int (*error_string)(int, const char**) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*bus_id)(char*, int, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*release)(int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*can_access)(int*, int, int) = nullptr;
  int (*enable_peer)(void*, unsigned) = nullptr;
  int (*memory_info)(std::size_t*, std::size_t*) = nullptr;
  int (*gpu_alloc)(std::uint64_t*, std::size_t) = nullptr;
  int (*gpu_free)(std::uint64_t) = nullptr;
  int (*host_alloc)(void**, std::size_t, unsigned) = nullptr;
  int (*host_free)(void*) = nullptr;
  int (*stream_create)(void**, unsigned) = nullptr;
  int (*stream_destroy)(void*) = nullptr;
  int (*stream_query)(void*) = nullptr;
  int (*module_load)(void**, const void*) = nullptr;
  int (*module_unload)(void*) = nullptr;
  int (*module_kernel)(void**, void*, const char*) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**) = nullptr;
  int (*copy_to_gpu)(std::uint64_t, const void*, std::size_t, void*) = nullptr;
  int (*copy_to_host)(void*, std::uint64_t, std::size_t, void*) = nullptr;
  int (*copy_to_peer)(std::uint64_t, void*, std::uint64_t, void*, std::size_t, void*) = nullptr;
  int (*begin_capture)(void*, int) = nullptr;
  int (*end_capture)(void*, void**) = nullptr;
  int (*graph_instantiate)(void**, void*, unsigned long long) = nullptr;
  int (*graph_destroy)(void*) = nullptr;
  int (*executable_destroy)(void*) = nullptr;
  int (*graph_launch)(void*, void*) = nullptr;
  int (*ipc_handle)(CudaIpcHandle*, std::uint64_t) = nullptr;
  int (*ipc_open)(std::uint64_t*, CudaIpcHandle, unsigned) = nullptr;
  int (*ipc_close)(std::uint64_t) = nullptr;

  /// Looks up all functions in `library`. Returns an error that names the missing ones; `name` is the library's name
  /// for this error.
  Status bind(SharedLibrary& library, const std::string& name);
};

}  // namespace strait::topo
