#pragma once

#include <string>
#include <vector>

#include "communicator/device_rank.hpp"
#include "executor/cuda/runtime.hpp"
#include "kernels/layout.hpp"
#include "transports/cuda_p2p/shared_memory.hpp"
#include "transports/host_staged/host_memory.hpp"

namespace strait {

/// The memory through which the ranks of a host trade: that of their GPUs where each reaches all others and a probe has
/// shown it, pinned host memory else.
class DeviceArenas {
 public:
  /// Collective: all ranks end with memory of the same kind, or with an error.
  static Result<DeviceArenas> open(const DeviceRank::Request& request, kernels::Mailbox* mailbox);

  /// arenas, counts, rank, ranks and slots are set.
  const kernels::Ring& ring() const { return ring_; }
  bool is_staged() const { return ring_.staged; }
  /// Staged, more than one rank, and copy engines wanted: memory that all ranks share for large messages
  /// (executor/copy_engine). Else null.
  const host_staged::HostMemory* windows() const { return windows_.data() == nullptr ? nullptr : &windows_; }
  static constexpr std::size_t windows_bytes = std::size_t{64} << 20;  ///< of a host
  /// Why not directly: empty where it is.
  const std::string& why_staged() const { return why_staged_; }

 private:
  void use(const kernels::ArenaLayout& layout);
  Status open_peers(const DeviceRank::Request& request);
  Status open_staging(const DeviceRank::Request& request);
  Status open_windows(const DeviceRank::Request& request);
  /// Writes to every peer and waits for what every peer writes, by kernels that run at the same time.
  Status probe(const DeviceRank::Request& request, kernels::Mailbox* mailbox) const;

  kernels::Ring ring_{};
  cuda::DeviceMemory counts_;
  std::vector<cuda_p2p::SharedMemory> peers_;     ///< by rank, this rank's own among them
  std::vector<host_staged::HostMemory> staging_;  ///< likewise
  host_staged::HostMemory windows_;
  std::string why_staged_;
};

}  // namespace strait
