#include "nccl/driver.hpp"

#include <dlfcn.h>

#include <cstdint>

namespace strait::nccl::driver {
namespace {

// The part of the CUDA driver's ABI that is used here.
using Result = int;
using Device = int;
using Context = struct CUctx_st*;
using Pointer = std::uint64_t;

struct Driver {
  Problem problem;
  Result (*init)(unsigned) = nullptr;
  Result (*device_get_count)(int*) = nullptr;
  Result (*context_get_current)(Context*) = nullptr;
  Result (*context_set_current)(Context) = nullptr;
  Result (*context_get_device)(Device*) = nullptr;
  Result (*primary_context_retain)(Context*, Device) = nullptr;
  Result (*allocate)(Pointer*, std::size_t) = nullptr;
  Result (*free)(Pointer) = nullptr;
  Result (*error_string)(Result, const char**) = nullptr;

  template <class F>
  void find(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (function == nullptr && problem.empty()) problem = "libcuda.so.1 has no " + std::string(name);
  }

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
    if (library == nullptr) {
      const char* reason = dlerror();
      problem = "no CUDA driver: " + std::string(reason == nullptr ? "libcuda.so.1 cannot be opened" : reason) +
                ". Install it, or set STRAIT_NCCL_HOST_RANKS=1 where buffers are host memory";
      return;
    }
    find(library, "cuInit", init);
    find(library, "cuDeviceGetCount", device_get_count);
    find(library, "cuCtxGetCurrent", context_get_current);
    find(library, "cuCtxSetCurrent", context_set_current);
    find(library, "cuCtxGetDevice", context_get_device);
    find(library, "cuDevicePrimaryCtxRetain", primary_context_retain);
    find(library, "cuMemAlloc_v2", allocate);
    find(library, "cuMemFree_v2", free);
    find(library, "cuGetErrorString", error_string);
    if (problem.empty()) problem = check(init(0), "cuInit");
  }

  Problem check(Result result, const char* call) const {
    if (result == 0) return {};
    const char* text = nullptr;
    error_string(result, &text);
    return std::string(call) + " failed: " + (text == nullptr ? "error " + std::to_string(result) : text);
  }

  /// Makes the primary context of device 0 current if the thread has no current context.
  Problem need_context() const {
    Context context = nullptr;
    if (Problem p = check(context_get_current(&context), "cuCtxGetCurrent"); !p.empty() || context != nullptr) return p;
    if (Problem p = check(primary_context_retain(&context, 0), "cuDevicePrimaryCtxRetain"); !p.empty()) return p;
    return check(context_set_current(context), "cuCtxSetCurrent");
  }
};

const Driver& the_driver() {
  static const Driver driver;
  return driver;
}

}  // namespace

Problem current_device(int& device) {
  const Driver& driver = the_driver();
  if (!driver.problem.empty()) return driver.problem;
  Context context = nullptr;
  if (Problem p = driver.check(driver.context_get_current(&context), "cuCtxGetCurrent"); !p.empty()) return p;
  device = 0;
  return context == nullptr ? Problem() : driver.check(driver.context_get_device(&device), "cuCtxGetDevice");
}

Problem device_count(int& devices) {
  const Driver& driver = the_driver();
  if (!driver.problem.empty()) return driver.problem;
  return driver.check(driver.device_get_count(&devices), "cuDeviceGetCount");
}

Problem allocate(void** pointer, std::size_t size_bytes) {
  const Driver& driver = the_driver();
  if (!driver.problem.empty()) return driver.problem;
  if (Problem p = driver.need_context(); !p.empty()) return p;
  Pointer memory = 0;
  Problem problem = driver.check(driver.allocate(&memory, size_bytes), "cuMemAlloc");
  if (problem.empty()) *pointer = reinterpret_cast<void*>(memory);
  return problem;
}

Problem free(void* pointer) {
  const Driver& driver = the_driver();
  if (!driver.problem.empty()) return driver.problem;
  if (Problem p = driver.need_context(); !p.empty()) return p;
  return driver.check(driver.free(reinterpret_cast<Pointer>(pointer)), "cuMemFree");
}

}  // namespace strait::nccl::driver
