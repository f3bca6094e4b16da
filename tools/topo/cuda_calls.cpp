#include "topo/cuda_calls.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace strait::topo {

Status CudaDriver::Calls::bind(void* library, const std::string& name) {
  std::string missing;
  const auto find = [&](auto& call, const char* symbol) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(::dlsym(library, symbol));
    if (call == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(symbol);
  };
  find(init, "cuInit");
  find(error_string, "cuGetErrorString");
  find(device_count, "cuDeviceGetCount");
  find(device, "cuDeviceGet");
  find(device_name, "cuDeviceGetName");
  find(bus_id, "cuDeviceGetPCIBusId");
  find(retain, "cuDevicePrimaryCtxRetain");
  find(release, "cuDevicePrimaryCtxRelease_v2");
  find(set_current, "cuCtxSetCurrent");
  find(can_access, "cuDeviceCanAccessPeer");
  find(enable_peer, "cuCtxEnablePeerAccess");
  find(memory_info, "cuMemGetInfo_v2");
  find(gpu_alloc, "cuMemAlloc_v2");
  find(gpu_free, "cuMemFree_v2");
  find(host_alloc, "cuMemHostAlloc");
  find(host_free, "cuMemFreeHost");
  find(stream_create, "cuStreamCreate");
  find(stream_destroy, "cuStreamDestroy_v2");
  find(stream_query, "cuStreamQuery");
  find(module_load, "cuModuleLoadData");
  find(module_unload, "cuModuleUnload");
  find(module_kernel, "cuModuleGetFunction");
  find(launch, "cuLaunchKernel");
  find(copy_to_gpu, "cuMemcpyHtoDAsync_v2");
  find(copy_to_host, "cuMemcpyDtoHAsync_v2");
  find(copy_to_peer, "cuMemcpyPeerAsync");
  find(begin_capture, "cuStreamBeginCapture_v2");
  find(end_capture, "cuStreamEndCapture");
  find(graph_instantiate, "cuGraphInstantiateWithFlags");
  find(graph_destroy, "cuGraphDestroy");
  find(executable_destroy, "cuGraphExecDestroy");
  find(graph_launch, "cuGraphLaunch");
  find(ipc_handle, "cuIpcGetMemHandle");
  find(ipc_open, "cuIpcOpenMemHandle_v2");
  find(ipc_close, "cuIpcCloseMemHandle");
  if (!missing.empty())
    return fail(Code::unsupported,
                name + " lacks functions that every CUDA driver since 11.4 has (" + missing + "). Update the driver");
  return {};
}

}  // namespace strait::topo
