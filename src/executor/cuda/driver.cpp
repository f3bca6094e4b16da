#include "executor/cuda/driver.hpp"

#include <cuda_runtime_api.h>

namespace strait::cuda {
namespace {

/// The requested version of each entry point: the oldest that does what is needed here, because the version in the
/// headers may be newer than the driver.
constexpr unsigned wanted_version = 12000;

template <class F>
Status find(F& function, const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
#if CUDART_VERSION >= 12050
  const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &found, wanted_version, cudaEnableDefault, &status);
#else
  const cudaError_t result = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status);
#endif
  if (result != cudaSuccess || status != cudaDriverEntryPointSuccess || found == nullptr) {
    cudaGetLastError();
    return fail(Code::unsupported, std::string("the CUDA driver has no ") + name + " (" + cudaGetErrorString(result) +
                                       "). Install a driver for CUDA 12 or later");
  }
  function = reinterpret_cast<F>(found);
  return {};
}

Result<Driver> load() {
  Driver driver{};
  STRAIT_TRY(find(driver.get_error_string, "cuGetErrorString"));
  STRAIT_TRY(find(driver.get_allocation_granularity, "cuMemGetAllocationGranularity"));
  STRAIT_TRY(find(driver.create, "cuMemCreate"));
  STRAIT_TRY(find(driver.release, "cuMemRelease"));
  STRAIT_TRY(find(driver.reserve, "cuMemAddressReserve"));
  STRAIT_TRY(find(driver.free_address, "cuMemAddressFree"));
  STRAIT_TRY(find(driver.map, "cuMemMap"));
  STRAIT_TRY(find(driver.unmap, "cuMemUnmap"));
  STRAIT_TRY(find(driver.set_access, "cuMemSetAccess"));
  STRAIT_TRY(find(driver.get_address_range, "cuMemGetAddressRange"));
  STRAIT_TRY(find(driver.retain_handle, "cuMemRetainAllocationHandle"));
  STRAIT_TRY(find(driver.get_properties, "cuMemGetAllocationPropertiesFromHandle"));
  STRAIT_TRY(find(driver.export_handle, "cuMemExportToShareableHandle"));
  STRAIT_TRY(find(driver.import_handle, "cuMemImportFromShareableHandle"));
  STRAIT_TRY(find(driver.launch_kernel, "cuLaunchKernelEx"));
  STRAIT_TRY(find(driver.most_active_clusters, "cuOccupancyMaxActiveClusters"));
  STRAIT_TRY(find(driver.batch_memory_operations, "cuStreamBatchMemOp"));
  STRAIT_TRY(find(driver.write_value, "cuStreamWriteValue32"));
  STRAIT_TRY(find(driver.wait_value, "cuStreamWaitValue32"));
  STRAIT_TRY(find(driver.add_event_record_node, "cuGraphAddEventRecordNode"));
  STRAIT_TRY(find(driver.push_context, "cuCtxPushCurrent"));
  STRAIT_TRY(find(driver.pop_context, "cuCtxPopCurrent"));
  STRAIT_TRY(find(driver.get_stream_context, "cuStreamGetCtx"));
  STRAIT_TRY(find(driver.get_context_device, "cuCtxGetDevice"));
  STRAIT_TRY(find(driver.get_capture_info, "cuStreamGetCaptureInfo"));
  STRAIT_TRY(find(driver.add_dependencies, "cuGraphAddDependencies"));
  STRAIT_TRY(find(driver.remove_dependencies, "cuGraphRemoveDependencies"));
  return driver;
}

}  // namespace

Result<const Driver*> Driver::instance() {
  static const Result<Driver> driver = load();
  if (!driver) return tl::unexpected(driver.error());
  return &*driver;
}

Status Driver::check(CUresult result, const std::string& what) const {
  if (result == CUDA_SUCCESS) return {};
  const char* text = nullptr;
  get_error_string(result, &text);
  const Code code = result == CUDA_ERROR_OUT_OF_MEMORY   ? Code::out_of_memory
                    : result == CUDA_ERROR_NOT_SUPPORTED ? Code::unsupported
                                                         : Code::cuda_error;
  return fail(code, what + ": " + (text != nullptr ? text : "unknown error") + " (CUresult " +
                        std::to_string(static_cast<int>(result)) + ")");
}

}  // namespace strait::cuda
