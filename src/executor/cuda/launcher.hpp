#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/error.hpp"
#include "executor/cuda/driver.hpp"

namespace strait::cuda {

struct LaunchShape {
  std::uint32_t blocks, threads;
  /// Whether it may begin while the previous kernel still runs (programmatic dependent launch).
  bool overlaps;
  /// Dynamic shared memory of a block, in addition to what the kernel always has.
  std::uint32_t memory_bytes = 0;
  /// Number of neighbouring blocks in a cluster, which start together and close to one another; needs compute
  /// capability 9.0. Must divide `blocks`.
  std::uint32_t cluster_blocks = 1;
  /// An event that is recorded once all blocks have started; null: none.
  void* started = nullptr;
};

/// Launches kernels of this library on one device, through the driver, which takes less host time than the runtime.
/// Used by one thread at a time.
class Launcher {
 public:
  static Result<Launcher> open(int device);
  /// Launches a kernel that has one parameter, to which `argument` points. `kernel` is the runtime's handle.
  Status launch(const void* kernel, const void* argument, const LaunchShape& shape, void* stream);
  /// Returns how many blocks the device can run at the same time if a kernel's launches have this shape; 0 if it does
  /// not support such clusters.
  Result<std::uint32_t> most_blocks_at_once(const void* kernel, const LaunchShape& shape);

 private:
  Launcher(int device, const Driver& driver) : device_(device), driver_(&driver) {}
  Result<CUfunction> function_of(const void* kernel);

  int device_;
  const Driver* driver_;
  std::unordered_map<const void*, CUfunction> functions_;
};

}  // namespace strait::cuda
