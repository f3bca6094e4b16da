#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

#include "base/error.hpp"

/// The CUDA driver's entry points that this library needs in addition to the runtime. They are looked up at run time,
/// so the library also loads on a machine without a driver.
namespace strait::cuda {

struct Driver {
  decltype(&cuGetErrorString) get_error_string;
  decltype(&cuMemGetAllocationGranularity) get_allocation_granularity;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free_address;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuMemGetAddressRange) get_address_range;
  decltype(&cuMemRetainAllocationHandle) retain_handle;
  decltype(&cuMemGetAllocationPropertiesFromHandle) get_properties;
  decltype(&cuMemExportToShareableHandle) export_handle;
  decltype(&cuMemImportFromShareableHandle) import_handle;
  decltype(&cuLaunchKernelEx) launch_kernel;
  decltype(&cuOccupancyMaxActiveClusters) most_active_clusters;
  decltype(&cuStreamBatchMemOp) batch_memory_operations;
  decltype(&cuStreamWriteValue32) write_value;
  decltype(&cuStreamWaitValue32) wait_value;
  decltype(&cuGraphAddEventRecordNode) add_event_record_node;
  decltype(&cuCtxPushCurrent) push_context;
  decltype(&cuCtxPopCurrent) pop_context;
  // Declared as of CUDA 12.0, because newer headers declare newer versions.
  CUresult(CUDAAPI* get_stream_context)(CUstream, CUcontext*);
  CUresult(CUDAAPI* get_context_device)(CUdevice*);
  CUresult(CUDAAPI* get_capture_info)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                      std::size_t*);
  CUresult(CUDAAPI* add_dependencies)(CUgraph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count);
  CUresult(CUDAAPI* remove_dependencies)(CUgraph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count);

  /// Returns the process's table, or an error that says why there is none.
  static Result<const Driver*> instance();
  /// Converts a driver result to a Status with the text "<what>: <the driver's text>".
  Status check(CUresult result, const std::string& what) const;
};

}  // namespace strait::cuda
