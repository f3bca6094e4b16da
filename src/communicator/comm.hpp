#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "bootstrap/channel.hpp"
#include "bootstrap/init_progress.hpp"
#include "calls/call.hpp"
#include "calls/watch.hpp"
#include "communicator/collective_sequence.hpp"
#include "communicator/device_operations.hpp"
#include "communicator/flight_recorder.hpp"
#include "communicator/host_operations.hpp"
#include "communicator/premul_ops.hpp"
#include "communicator/registrations.hpp"
#include "device/device_rank.hpp"
#include "executor/host/host_program.hpp"
#include "plan/clock.hpp"
#include "transport/transport.hpp"

namespace strait {

struct InitPlace;

/// Settings of a communicator. What is 0 or unset is decided by the environment.
struct CommOptions {
  std::int64_t init_timeout_ms = 0;  ///< 0: STRAIT_INIT_TIMEOUT_MS
  std::int64_t timeout_ms = 0;       ///< 0: STRAIT_TIMEOUT_MS
  int device = -1;                   ///< CUDA device; -1: a host rank
  DeviceOptions gpu;
  std::optional<WireFormat> wire;  ///< default of calls that can have one; none: STRAIT_WIRE
  // For the internal communicators of GPU ranks of several hosts (HostsRank).
  std::uint32_t averaged = 0;   ///< contributions by which an average divides; 0: one per rank
  std::vector<RankName> names;  ///< the ranks' names in errors; empty: as they joined
  /// Returns whether this is a communicator of host ranks within a HostsRank.
  bool is_part_of_hosts() const { return device < 0 && !names.empty(); }
};

/// Checks the values of variables that must be equal on all ranks, as far as the table of variables cannot judge them.
/// For JoinOptions::own_settings: before ranks compare them, so that a wrong value of one is not told as a difference.
Status check_shared_values(const Environment& environment);

/// A set-up call, which all ranks make together, as they do collectives.
enum class SetUpCall : std::uint32_t { split, registration };

/// One rank of a communicator. Connects bootstrap, transport, plans, selection and executor. Operations are begun, then
/// stepped until done, so that a group can drive several communicators from one thread; run() does both. One operation
/// at a time. One thread at a time, except for functions that may be called from any thread.
class Comm {
 public:
  /// Returns whether the communicator was aborted while it is being made; then all its ranks give it up. Polled about
  /// every 50 ms by ranks that wait for others. Null: it cannot be aborted.
  using IsCancelled = std::function<bool()>;
  /// Makes this rank of a communicator. Collective over the ranks that `channel` connects. `progress`, which may be
  /// null, is told what this rank waits for.
  static Result<std::unique_ptr<Comm>> create(std::unique_ptr<Channel> channel, const CommOptions& options,
                                              const IsCancelled& is_cancelled = {}, InitProgress* progress = nullptr);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t ranks() const { return ranks_; }
  /// Returns the communicator's error, even if only this rank's GPU knows of it so far; success if there is none. From
  /// any thread.
  Status sticky() const { return has_failed() ? watch_->sticky() : Status(); }
  const CommOptions& options() const { return options_; }
  const FlightRecorder& flight_recorder() const { return *recorder_; }
  bool is_on_device() const { return device_ != nullptr; }
  const std::string& transport_name() const { return transport_name_; }
  /// Returns why no faster transport is used; "" if there is none.
  const std::string& transport_why() const { return transport_why_; }

  /// GPU ranks: returns the rates for which calls are cut.
  const ExchangeRates& exchange_rates() const { return device_->exchange_rates(); }

  /// Return the wire format of calls that can have one and do not specify it, whether it applies to calls that only
  /// copy (parameters, checkpoints), and the size of their larger buffer from which it applies.
  WireFormat wire() const { return *options_.wire; }
  bool wire_copies() const { return wire_copies_; }
  std::size_t wire_bytes() const {
    // Values of smaller buffers seldom have like magnitudes, and a block has one scale.
    constexpr std::size_t least = 16 << 10;
    const std::size_t pays = device_ ? device_->wire_pays_bytes() : 0;
    return wire_bytes_.value_or(std::max(least, pays));
  }

  /// Checks and prepares a collective. To be called for each one before begin() or run(), and before any call of its
  /// group begins.
  Status prepare(const Call& call);
  /// Runs `work`. If memory runs out, the operation fails, and the peers are told.
  template <class F>
  std::invoke_result_t<F> or_out_of_memory(F&& work) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return tl::unexpected(raise_out_of_memory());
    }
  }
  /// Tells ranks that wait for this one in a split or registration that it has given up. No further set-up calls are
  /// possible; collectives still work.
  void give_up_set_up(const Error& error);
  /// See give_up_set_up().
  template <class F>
  std::invoke_result_t<F> or_tell_out_of_memory(F&& work) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      give_up_set_up({Code::out_of_memory, "no memory left"});
      throw;
    }
  }
  /// Begins the call, and steps and waits until it is done. Calls must be valid (validate()).
  Status run(const Call& call);
  Status run_message(const Call& call);  ///< a send or a receive on its own
  Status begin(const Call& call);
  /// Begins the first of a group's collectives, and those after it that share its launch. Returns how many.
  Result<std::size_t> begin_first_of(std::span<Call> group);
  /// Checks whether sends and receives of one group fit together, as far as this rank alone can tell.
  Status check_messages(std::span<const Call> calls) const;
  /// Begins the sends and receives of one group, all in flight together.
  Status begin_messages(std::span<const Call> calls);
  /// Host ranks: begins messages and waits until they are done. Their data comes and goes in pieces of at most
  /// slot_bytes(); `pieces` refers to a message by its index in `calls`.
  Status run_messages(std::span<const Call> calls, MessagePieces& pieces);
  /// Host ranks: receives what peers have already sent. To be called by the rank's thread while it waits for something
  /// else, so that the next call has less to do.
  void receive_early() { transport_->receive_early(); }
  std::size_t slot_bytes() const { return transport_->slot_bytes(); }
  /// GPU ranks: makes later work on the stream of `then` wait for the work that is on that of `first` now.
  Status order_streams(const Call& first, const Call& then) { return device_operations_->order_streams(first, then); }
  using State = HostProgram::State;
  Result<State> step() { return host_operations_ ? host_operations_->step() : State::done; }
  /// Waits until this rank's GPU, if any, has finished everything that was begun; then returns sticky(). From any
  /// thread.
  Status await_device() const;
  /// Returns whether the GPU, if any, has finished everything; nullopt if it does not answer. From any thread.
  std::optional<bool> is_idle() const { return device_ ? device_->is_idle() : true; }
  /// Host ranks: waits a little for other ranks to advance the operation in progress.
  Status pause() { return host_operations_->pause(); }

  /// Makes a communicator of the ranks of the same color, ordered by (key, rank); nullptr for a negative color.
  /// Collective.
  Result<std::unique_ptr<Comm>> split(int color, int key, const CommOptions& options,
                                      const IsCancelled& is_cancelled = {});
  /// Makes a communicator of the ranks that `remaining` lists, in ascending order. Collective over these alone; works
  /// even if this communicator has failed.
  Result<std::unique_ptr<Comm>> shrink(const std::vector<std::uint32_t>& remaining, CommOptions options,
                                       const Wait& wait) const;
  /// Fails the communicator with Code::aborted on all ranks. From any thread.
  void abort();
  /// Tells peers that the process ends in good order, and waits until they have heard it or the deadline has passed.
  /// Does nothing if the communicator has failed, or its GPU is not idle.
  void announce_exit(const Deadline& deadline);
  /// Makes `error` the communicator's error, unless there is one already. From any thread.
  void fail_in(const Error& error) { watch_->raise(error); }

  /// Registers memory that peers may access directly, under a handle from next_handle(). Collective.
  Status register_memory(std::uint64_t handle, void* pointer, std::size_t bytes);
  std::uint64_t next_handle() { return registrations_.next_handle(); }
  Status deregister_memory(std::uint64_t handle);
  /// GPU ranks: ends a registration that no call can have used yet. Does not wait.
  void drop_unused_registration(std::uint64_t handle);
  bool has_registrations() const { return !registrations_.is_empty(); }
  bool is_registered(const void* pointer, std::size_t bytes) const;

  PremulOps& premul_ops() { return premul_ops_; }

 private:
  explicit Comm(std::unique_ptr<Channel> channel);
  struct Opening;
  Status read_settings(Opening& opening);
  Status open_transport(Opening& opening);
  std::vector<RankName> rank_names() const;
  void make_recorder(std::uint64_t communicator);
  void make_watch(bool oversubscribed);
  /// `model`: by which plans are selected.
  void make_host_operations(Opening& opening, ClockModel model);
  DeviceRank::Request device_request(const Opening& opening, const std::vector<std::string>& bus_ids);
  Status open_device(const Opening& opening);
  /// Opens device_ of GPU ranks of several hosts.
  Status open_hosts(const Opening& opening);
  /// Sets device_, and what follows from it.
  void use_device(std::unique_ptr<DeviceRank> device);
  /// Returns what is known of this rank where it makes a call of all ranks.
  InitPlace init_place() const;
  Status register_on_all(std::uint64_t handle, void* pointer, std::size_t bytes);
  Status register_with_all(std::uint64_t number, void* pointer, std::size_t bytes, const Deadline& deadline);
  bool has_failed() const {
    if (device_) device_->raise_pending_failures();
    return watch_->has_failed();
  }
  /// Returns sticky(), and also tells ranks that wait on the channel of an error.
  Status announce_failure();
  /// Returns what ends waits on the channel: a failure of the communicator, or is_cancelled().
  std::function<Status()> error_source_of(const IsCancelled& is_cancelled) const;
  /// Makes waits on the channel end by error_source_of() from now on.
  void set_error_source(const IsCancelled& is_cancelled);
  Result<std::unique_ptr<Comm>> make_part(int color, int key, const CommOptions& options,
                                          const IsCancelled& is_cancelled);
  /// Finds the cause of an error with which a set-up call of all ranks has failed on this rank: the communicator's
  /// failure, of which this error may only be a consequence, or that another rank died. Returns that cause as an error;
  /// success if it is neither.
  Status cause_of(const Error& error);
  /// The first step of a set-up call: checks that all ranks make the same one. Collective.
  Status begin_set_up(SetUpCall call, const Deadline& deadline);
  /// Raises an error if this rank has been entering a set-up call for a while and another rank is in a collective
  /// instead.
  Status check_entering() const;

  void prepare_exit();
  Status finish();
  Error raise_out_of_memory();
  /// Checks that the ranks can carry the call out as its options ask.
  Status check_algorithm(const Call& call) const;

  std::unique_ptr<Channel> channel_;
  std::uint32_t rank_ = 0;
  std::uint32_t ranks_ = 1;
  CommOptions options_;
  std::optional<std::size_t> wire_bytes_;  ///< STRAIT_WIRE_BYTES, if it is set
  bool wire_copies_ = false;               ///< STRAIT_WIRE_CALLS
  std::unique_ptr<Transport> transport_;
  std::string transport_name_;
  std::string transport_why_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<FlightRecorder> recorder_;
  std::optional<CollectiveSequence> collectives_;
  std::unique_ptr<DeviceRank> device_;                 ///< null on host ranks
  std::atomic<DeviceRank*> asked_device_{nullptr};     ///< device_, for other threads
  std::optional<HostOperations> host_operations_;      ///< of host ranks
  std::optional<DeviceOperations> device_operations_;  ///< of GPU ranks

  /// The set-up call that this rank waits for all ranks to begin.
  struct Entering {
    SetUpCall call;
    std::chrono::steady_clock::time_point since;
  };
  std::optional<Entering> entering_;
  Registrations registrations_;
  Deadline device_deadline_ = Deadline::never();  ///< deadline of device_'s collective requests
  /// Freed when there is no memory left, so that there is some for the error's text.
  std::unique_ptr<std::byte[]> last_memory_ = std::make_unique<std::byte[]>(16 << 10);
  PremulOps premul_ops_;
};

}  // namespace strait
