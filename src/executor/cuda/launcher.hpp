#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/error.hpp"
#include "executor/cuda/driver.hpp"

namespace strait::cuda {

struct LaunchShape {
  std::uint32_t blocks, threads;
  bool overlaps;                   ///< may begin while the kernel before it still runs
  std::uint32_t memory_bytes = 0;  ///< of a block, besides what the kernel has in any launch
  /// So many neighbours begin together, close to one another; from compute capability 9.0 on. Divides `blocks`.
  std::uint32_t cluster_blocks = 1;
};

/// Launches kernels of this library on one device: by the driver, which takes less of the host's time than the runtime
/// does. One thread at a time.
class Launcher {
 public:
  static Result<Launcher> open(int device);
  /// `kernel`: as the runtime knows it, of one argument, to which that pointer points.
  Status launch(const void* kernel, const void* argument, const LaunchShape& shape, void* stream);
  /// Blocks that the device has room for at a time, if launches of a kernel have that shape; 0: it cannot cluster them
  /// so.
  Result<std::uint32_t> most_blocks_at_once(const void* kernel, const LaunchShape& shape);

 private:
  Launcher(int device, const Driver& driver) : device_(device), driver_(&driver) {}
  Result<CUfunction> function_of(const void* kernel);

  int device_;
  const Driver* driver_;
  std::unordered_map<const void*, CUfunction> functions_;
};

}  // namespace strait::cuda
