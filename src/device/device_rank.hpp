#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "calls/call.hpp"
#include "calls/hops.hpp"
#include "calls/watch.hpp"
#include "device/device_options.hpp"
#include "select/exchange_rates.hpp"

namespace strait {

/// How far a GPU is.
struct DeviceProgress {
  std::optional<std::uint32_t> collectives;  ///< started, modulo 2^32
  /// All kernels that it has begun have ended, none by giving up; but nothing is known of those of graphs.
  bool has_ended = false;
};

/// What a GPU adds to a rank: memory that the peers' GPUs reach, and the kernels that carry calls out. The rest of the
/// communicator (joining, control words, errors) is the same as on host ranks.
class DeviceRank {
 public:
  struct Request {
    DeviceOptions options;  ///< as the settings have them
    int device = 0;
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    std::vector<std::string> bus_ids;   ///< of the ranks' GPUs
    bool threads_share_a_gpu = false;   ///< ranks of one process, whichever
    std::int64_t timeout_ms = 0;        ///< of an operation; 0: none
    bool shares_control = true;         ///< a failure of any rank is seen by all at once
    Hops hops = Hops::chosen;           ///< forced where it can be
    std::string communicator;           ///< a name that no other has, the same on all ranks
    std::uint32_t most_reducers = 0;    ///< threads of all ranks together
    WireFormat wire = WireFormat::off;  ///< of the communicator: what it needs is there from the start
    /// What the GPUs give by PCIe, through host memory or from peer to peer: the same on all ranks. Collective.
    std::function<Result<ExchangeRates>(bool through_host)> exchange_rates;
    /// While this rank waits for its GPU: an error if the communicator will not be made. Never waits.
    std::function<Status()> goes_on;
    /// All ranks' words, by rank. Collective.
    std::function<Result<std::vector<std::uint32_t>>(std::uint32_t word)> gather;
    /// Gives this descriptor to all ranks; theirs, by rank. Collective.
    std::function<Result<std::vector<UniqueFd>>(int fd)> exchange;
    /// Whether all ranks are well; else the first one's error, as "rank 1 (...) cannot <what>: ...". Collective.
    std::function<Status(const Status& own, const std::string& what)> agree;
    Watch* watch = nullptr;  ///< outlives the rank
  };
  static Result<std::unique_ptr<DeviceRank>> open(const Request& request);
  /// Waits for the device to finish this rank's work; after an error of the communicator that is soon.
  virtual ~DeviceRank() = default;

  /// "cuda_p2p"; "host_staged" where peers' memory cannot be reached; "islands" where that of some can.
  virtual const char* transport_name() const = 0;
  /// Why it is no faster one; empty where there is none.
  virtual const std::string& transport_why() const = 0;
  /// That its calls are cut for: the same on all ranks.
  virtual const ExchangeRates& exchange_rates() const = 0;
  /// From which size of the larger buffer on a wire format makes calls faster: the same on all ranks.
  virtual std::size_t wire_pays_bytes() const = 0;
  /// Before a call is enqueued, and before anything of its group is: allocates what it needs, which may wait for
  /// kernels that run. Code::invalid_usage: the stream is being captured, and that cannot be now; nothing has happened.
  virtual Status prepare_call(const Call& call) = 0;
  /// Launches the call on its stream. Calls are valid (validate()) and prepared.
  virtual Status enqueue(const Call& call) = 0;
  /// How many of a group's collectives, from the first one on, go in one launch; at least 1. The same on all ranks.
  virtual std::size_t aggregated_calls(std::span<const Call> group) const = 0;
  /// So many.
  virtual Status enqueue_aggregate(std::span<const Call> calls) = 0;
  /// Sends and receives of one group.
  virtual Status enqueue_messages(std::span<const Call> calls) = 0;
  /// What comes next on `then` waits for what is on `first` now. Where one of them is being captured and the other is
  /// not, or into another graph, nothing: no wait crosses the border of a graph.
  virtual Status order_streams(void* first, void* then) = 0;
  /// Has peers map this memory (straitCommRegister), so that calls may write into it in place. Collective. Does nothing
  /// where GPUs do not reach one another's memory.
  virtual Status register_memory(std::uint64_t number, void* pointer, std::size_t bytes) = 0;
  /// Waits for what this rank's GPU does.
  virtual Status deregister_memory(std::uint64_t number) = 0;
  /// Likewise, of what no call can have used yet: waits for nothing.
  virtual void forget_memory(std::uint64_t number) = 0;
  /// Until this rank's GPU has done all that was enqueued. Code::aborted: the communicator has failed, and that does
  /// not end. Another error: the GPU has failed. From any thread.
  virtual Status await_work() = 0;
  /// If a kernel of this rank has given up, that is the communicator's error from now on: who has seen a stream end
  /// need not wait until it is noticed. From any thread.
  virtual void hear_of_failures() const = 0;
  /// Whether the GPU has finished all that was enqueued; nothing where that cannot be asked now. From any thread.
  virtual std::optional<bool> is_idle() const = 0;
  /// What the GPU has started, or had when the communicator failed, which is put down then in the rank's control words
  /// (RankControl::started); nothing where it does not answer. From any thread.
  virtual std::optional<DeviceProgress> progress() = 0;
  /// The number of the capture if the stream records into a graph, else 0: what is captured runs later, any number of
  /// times. Asked right before a call is enqueued on it.
  virtual Result<std::uint64_t> capture_of(void* stream) = 0;
};

}  // namespace strait
