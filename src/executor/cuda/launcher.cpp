#include "executor/cuda/launcher.hpp"

#include <optional>
#include <string>

#include "executor/cuda/runtime.hpp"

namespace strait::cuda {
namespace {

/// A shape in the form in which the driver takes it. Cannot be copied, because the configuration points into the
/// object.
class LaunchConfig {
 public:
  LaunchConfig(const LaunchShape& shape, void* stream) {
    config_.gridDimX = shape.blocks;
    config_.blockDimX = shape.threads;
    config_.gridDimY = config_.gridDimZ = config_.blockDimY = config_.blockDimZ = 1;
    config_.sharedMemBytes = shape.memory_bytes;
    config_.hStream = static_cast<CUstream>(stream);
    config_.attrs = attributes_;
    if (shape.overlaps)
      add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).programmaticStreamSerializationAllowed = 1;
    if (shape.cluster_blocks > 1) add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {shape.cluster_blocks, 1, 1};
    if (shape.started != nullptr)
      add(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT).launchCompletionEvent = {static_cast<CUevent>(shape.started), 0};
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;
  const CUlaunchConfig& operator*() const { return config_; }

 private:
  CUlaunchAttributeValue& add(CUlaunchAttributeID what) {
    CUlaunchAttribute& attribute = attributes_[config_.numAttrs++];
    attribute.id = what;
    return attribute.value;
  }
  CUlaunchConfig config_{};
  CUlaunchAttribute attributes_[3]{};
};

/// Returns whether this is a default stream (also the per-thread one), which is that of the current device. All other
/// streams belong to a device of their own.
bool is_default(void* stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

}  // namespace

Result<Launcher> Launcher::open(int device) {
  STRAIT_ASSIGN(const Driver* driver, Driver::instance());
  return Launcher(device, *driver);
}

/// Returns the driver's handle of a kernel. Such handles belong to no context, so this does not load the kernel.
Result<CUfunction> Launcher::function_of(const void* kernel) {
  if (const auto known = functions_.find(kernel); known != functions_.end()) return known->second;
  cudaKernel_t found = nullptr;
  STRAIT_TRY(check(cudaGetKernel(&found, kernel), "cannot find a kernel"));
  return functions_[kernel] = reinterpret_cast<CUfunction>(found);
}

Status Launcher::launch(const void* kernel, const void* argument, const LaunchShape& shape, void* stream) {
  STRAIT_ASSIGN(const CUfunction function, function_of(kernel));
  std::optional<DeviceGuard> guard;
  if (is_default(stream)) guard.emplace(device_);
  const LaunchConfig config(shape, stream);
  void* arguments[] = {const_cast<void*>(argument)};
  const CUresult launched = driver_->launch_kernel(&*config, function, arguments, nullptr);
  if (launched == CUDA_SUCCESS) return {};
  return driver_->check(launched, "cannot launch a kernel on GPU " + std::to_string(device_));
}

Result<std::uint32_t> Launcher::most_blocks_at_once(const void* kernel, const LaunchShape& shape) {
  STRAIT_ASSIGN(const CUfunction function, function_of(kernel));
  const DeviceGuard guard(device_);
  const LaunchConfig config(shape, nullptr);
  int clusters = 0;
  const CUresult asked = driver_->most_active_clusters(&clusters, function, &*config);
  if (asked == CUDA_ERROR_INVALID_CLUSTER_SIZE || asked == CUDA_ERROR_NOT_SUPPORTED) return 0;
  STRAIT_TRY(driver_->check(asked, "cannot ask how many blocks run at a time"));
  return static_cast<std::uint32_t>(clusters) * shape.cluster_blocks;
}

}  // namespace strait::cuda
