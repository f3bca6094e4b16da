#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gpu/race_hunt/calls.hpp"
#include "gpu/race_hunt/kernels.hpp"
#include "gpu/race_hunt/tables.hpp"
#include "strait/strait.h"

namespace strait::race {

/// One rank of the hunt: makes the calls of batches on its streams and enqueues a check after each. Used by one thread.
class Rank {
 public:
  struct Place {
    int device = 0;
    std::uint32_t rank = 0;
    std::uint64_t seed = 0;
    Limits limits;
    bool waits = true;  ///< pauses at random, on the host and on the device
  };
  Rank(const Place& place, straitComm_t comm, const DeviceTables& tables)
      : place_(place), comm_(comm), tables_(tables) {}
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Status prepare();
  /// Enqueues batch `number`, whose first call has the number `first_call`.
  Status run(const Batch& batch, std::uint64_t number, std::uint64_t first_call);
  /// Waits for everything that was enqueued, and fetches the findings.
  Status finish();
  /// What the checks had found by the last finish().
  const Finding& finding() const { return finding_; }
  unsigned long long checked_elements() const { return checked_elements_; }

 private:
  Status run(const Step& step, Random& random, std::uint64_t first_call, bool captures);
  Status enter(HuntedCall& call, std::byte* buffer, cudaStream_t stream);
  Status call(const HuntedCall& call, std::byte* buffer, cudaStream_t stream);
  Status check(const HuntedCall& call, std::byte* buffer, cudaStream_t stream, std::uint64_t number);
  Status pause(Random& random, cudaStream_t stream, bool captures) const;
  Result<cudaGraphExec_t> record(const Batch& batch, Random& random, std::uint64_t first_call);
  /// Orders what is enqueued next, on `stream`, after what was enqueued last, if either is a graph launch: the library
  /// does not see graph launches and cannot order them.
  Status order(std::uint32_t stream, bool is_graph);
  std::byte* buffer(std::uint32_t stream, std::size_t member) const {
    return buffers_[stream * most_together + member].data();
  }

  Place place_;
  straitComm_t comm_;
  const DeviceTables& tables_;
  std::vector<cudaStream_t> streams_;
  std::vector<cuda::DeviceMemory> buffers_;  ///< [stream][member of a group]; poison except during a call
  cuda::DeviceMemory finding_memory_;
  Finding finding_{};
  unsigned long long checked_elements_ = 0;
  std::uint64_t launches_ = 1;  ///< how often the steps being enqueued or captured will run
  cudaEvent_t order_ = nullptr;
  std::uint32_t last_stream_ = 0;
  bool last_was_graph_ = false;
  std::vector<cudaGraphExec_t> graphs_;  ///< graphs launched since the last finish()
};

}  // namespace strait::race
