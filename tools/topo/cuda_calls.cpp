#include "topo/cuda_calls.hpp"

namespace strait::topo {

Status CudaDriver::Calls::bind(SharedLibrary& library, const std::string& name) {
  library.need(init, "cuInit");
  library.need(error_string, "cuGetErrorString");
  library.need(device_count, "cuDeviceGetCount");
  library.need(device, "cuDeviceGet");
  library.need(device_name, "cuDeviceGetName");
  library.need(bus_id, "cuDeviceGetPCIBusId");
  library.need(retain, "cuDevicePrimaryCtxRetain");
  library.need(release, "cuDevicePrimaryCtxRelease_v2");
  library.need(set_current, "cuCtxSetCurrent");
  library.need(can_access, "cuDeviceCanAccessPeer");
  library.need(enable_peer, "cuCtxEnablePeerAccess");
  library.need(memory_info, "cuMemGetInfo_v2");
  library.need(gpu_alloc, "cuMemAlloc_v2");
  library.need(gpu_free, "cuMemFree_v2");
  library.need(host_alloc, "cuMemHostAlloc");
  library.need(host_free, "cuMemFreeHost");
  library.need(stream_create, "cuStreamCreate");
  library.need(stream_destroy, "cuStreamDestroy_v2");
  library.need(stream_query, "cuStreamQuery");
  library.need(module_load, "cuModuleLoadData");
  library.need(module_unload, "cuModuleUnload");
  library.need(module_kernel, "cuModuleGetFunction");
  library.need(launch, "cuLaunchKernel");
  library.need(copy_to_gpu, "cuMemcpyHtoDAsync_v2");
  library.need(copy_to_host, "cuMemcpyDtoHAsync_v2");
  library.need(copy_to_peer, "cuMemcpyPeerAsync");
  library.need(begin_capture, "cuStreamBeginCapture_v2");
  library.need(end_capture, "cuStreamEndCapture");
  library.need(graph_instantiate, "cuGraphInstantiateWithFlags");
  library.need(graph_destroy, "cuGraphDestroy");
  library.need(executable_destroy, "cuGraphExecDestroy");
  library.need(graph_launch, "cuGraphLaunch");
  library.need(ipc_handle, "cuIpcGetMemHandle");
  library.need(ipc_open, "cuIpcOpenMemHandle_v2");
  library.need(ipc_close, "cuIpcCloseMemHandle");
  if (!library.missing().empty())
    return fail(Code::unsupported, name + " lacks functions that every CUDA driver since 11.4 has (" +
                                       library.missing() + "). Update the driver");
  return {};
}

}  // namespace strait::topo
