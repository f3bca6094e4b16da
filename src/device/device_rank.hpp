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

/// How far a GPU has got with the calls of its rank.
struct DeviceProgress {
  std::optional<std::uint32_t> collectives;  ///< how many have started, modulo 2^32; none: they are not counted
  /// Whether all kernels that have begun have ended, none of them by giving up. Kernels in graphs are not counted.
  bool has_ended = false;
};

/// The GPU part of a rank: memory that peers' GPUs can access, and the kernels and copies that carry calls out.
/// Everything else of a communicator (bootstrap, control words, errors) is the same as on host ranks. One thread at a
/// time, except for functions that may be called from any thread.
class DeviceRank {
 public:
  struct Request {
    DeviceOptions options;  ///< with all settings resolved (Comm::read_settings())
    int device = 0;
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    std::vector<std::string> bus_ids;   ///< PCI bus IDs of the ranks' GPUs, by rank
    bool threads_share_a_gpu = false;   ///< some ranks are threads of one process on one GPU
    std::uint32_t spared_sms = 0;       ///< SMs for kernels that run beside this rank's launches and wait for others
    std::int64_t timeout_ms = 0;        ///< deadline of an operation; 0: none
    bool shares_control = true;         ///< control words are shared memory: all ranks see a failure at once
    Hops hops = Hops::chosen;           ///< the number of hops, forced where that is possible
    std::string communicator;           ///< its unique name, the same on all ranks
    std::uint32_t most_reducers = 0;    ///< limit of CPU reducer threads, of all ranks together
    WireFormat wire = WireFormat::off;  ///< default wire format; what it needs is set up from the start
    /// Returns the rates of the GPUs over PCIe, through host memory or between peers; the same on all ranks.
    /// Collective.
    std::function<Result<ExchangeRates>(bool through_host)> exchange_rates;
    /// Polled while the set-up waits for this rank's GPU: returns an error if the communicator will not be made. Does
    /// not wait.
    std::function<Status()> goes_on;
    /// Returns the words of all ranks, by rank. Collective.
    std::function<Result<std::vector<std::uint32_t>>(std::uint32_t word)> gather;
    /// Passes a file descriptor to all ranks and returns theirs, by rank. Collective.
    std::function<Result<std::vector<UniqueFd>>(int fd)> exchange;
    /// Returns success if `own` is success on all ranks; otherwise this rank's own error, or that of the first rank
    /// that failed, as "rank 1 (...) cannot <what>: ...". Collective.
    std::function<Status(const Status& own, const std::string& what)> agree;
    Watch* watch = nullptr;  ///< must outlive the rank
  };
  /// Collective over all ranks of the request.
  static Result<std::unique_ptr<DeviceRank>> open(const Request& request);
  /// Waits until the GPU has finished this rank's work. After a failure of the communicator that is soon; work that has
  /// not ended 10 s later is given up, and its memory leaked (CallOrder::await_idle()).
  virtual ~DeviceRank() = default;

  /// Returns "cuda_p2p"; "host_staged" if GPUs cannot access one another's memory; "islands" if only some can; on
  /// several hosts, the name for this host and that of the network, such as "cuda_p2p+tcp".
  virtual const char* transport_name() const = 0;
  /// Returns why a faster transport is not used; empty if there is none.
  virtual const std::string& transport_why() const = 0;
  /// Returns the rates for which calls are cut; the same on all ranks.
  virtual const ExchangeRates& exchange_rates() const = 0;
  /// Returns the size of the larger buffer from which a wire format makes calls faster; the same on all ranks.
  virtual std::size_t wire_pays_bytes() const = 0;
  /// Allocates what `call` needs. Must come before anything of the call's group is enqueued, because allocation may
  /// wait for running kernels. Code::invalid_usage: the stream is being captured, and the allocation is not possible
  /// then; nothing has changed.
  virtual Status prepare_call(const Call& call) = 0;
  /// Enqueues the call on its stream. The call must be valid (validate()) and prepared.
  virtual Status enqueue(const Call& call) = 0;
  /// Returns how many of a group's collectives, from the first on, share one launch; at least 1. The same on all ranks.
  virtual std::size_t aggregated_calls(std::span<const Call> group) const = 0;
  /// Enqueues the collectives that share a launch, as many as aggregated_calls() said.
  virtual Status enqueue_aggregate(std::span<const Call> calls) = 0;
  /// Enqueues the sends and receives of one group.
  virtual Status enqueue_messages(std::span<const Call> calls) = 0;
  /// Makes later work on `then` wait for the work that is on `first` now. Does nothing if only one of the streams is
  /// being captured, or both into different graphs: a wait cannot cross the border of a graph.
  virtual Status order_streams(void* first, void* then) = 0;
  /// Makes peers map this memory (straitCommRegister), so that calls can write directly into it. `number` is the same
  /// on all ranks. Collective. Does nothing if GPUs cannot access one another's memory.
  virtual Status register_memory(std::uint64_t number, void* pointer, std::size_t bytes) = 0;
  /// Ends a registration, after waiting for this rank's work on its GPU.
  virtual Status deregister_memory(std::uint64_t number) = 0;
  /// Ends a registration that no call can have used yet. Does not wait.
  virtual void drop_unused_registration(std::uint64_t number) = 0;
  /// Waits until this rank's GPU has finished everything that was enqueued. Code::aborted: the communicator has failed,
  /// and the work does not end. Another error: the GPU has failed. From any thread.
  virtual Status await_work() = 0;
  /// If a kernel of this rank has given up, makes that the communicator's error now: a thread that has seen a stream
  /// complete need not wait until the attendant thread notices. From any thread.
  virtual void raise_pending_failures() const = 0;
  /// Returns whether the GPU has finished everything that was enqueued; nothing if that cannot be determined now. From
  /// any thread.
  virtual std::optional<bool> is_idle() const = 0;
  /// Returns how far the GPU has got; nothing if it does not answer in time. On one host, also records in the rank's
  /// control words (RankControl::started) which calls the GPU has started; once a kernel has given up that record stays
  /// as it is. From any thread.
  virtual std::optional<DeviceProgress> progress() = 0;
  /// Returns the ID of the stream's capture, or 0 if it is not being captured. (Captured calls run later, any number of
  /// times.) To be asked right before a call is enqueued on the stream.
  virtual Result<std::uint64_t> capture_of(void* stream) = 0;
};

}  // namespace strait
