#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "bootstrap/bootstrap.hpp"
#include "calls/call.hpp"
#include "calls/quantized.hpp"
#include "calls/watch.hpp"
#include "communicator/flight_recorder.hpp"
#include "communicator/registrations.hpp"
#include "device/device_rank.hpp"
#include "executor/host/host_program.hpp"
#include "plan/request.hpp"
#include "select/selector.hpp"
#include "transport/transport.hpp"

namespace strait {

struct OpenTransport;

struct CommOptions {
  std::int64_t init_timeout_ms = 0;  ///< 0: STRAIT_INIT_TIMEOUT_MS
  std::int64_t timeout_ms = 0;       ///< 0: STRAIT_TIMEOUT_MS
  int device = -1;                   ///< CUDA device; -1: a host rank
  DeviceOptions gpu;
  double exchange_gbps = 0;        ///< GPU ranks by PCIe: what each exchanges while all do; 0: as found
  bool measures_exchange = true;   ///< GPU ranks without P2P: they measure whether that is much less than known
  bool shares_gpus = false;        ///< GPU ranks: also with other processes
  std::optional<WireFormat> wire;  ///< of the calls that can have one; none: STRAIT_WIRE
  /// Of their larger buffer: smaller ones stay exact. Unset: Comm::wire_bytes().
  std::optional<std::size_t> wire_bytes;
  std::uint32_t network_lanes = 0;  ///< GPU ranks of several hosts: of each one's proxy; 0: by the cores
  // Of communicators that GPU ranks of several hosts have among themselves (HostsRank).
  std::uint32_t averaged = 0;   ///< contributions that an average divides by; 0: as many as there are ranks
  std::vector<RankName> names;  ///< of the ranks, by which errors call them; none: as they joined
  bool is_part_of_hosts() const { return device < 0 && !names.empty(); }
};

/// A call that all ranks make together beside collectives.
enum class SetUpCall : std::uint32_t { split, registration };

/// One rank of a communicator. Wires together bootstrap, transport, plans, selection and executor.
/// Operations are begun, then stepped until done, so that a group can drive several communicators from one thread;
/// run() does both. One operation at a time.
class Comm {
 public:
  /// Asked about every 50 ms by who waits for other ranks: whether a communicator in the making was aborted, on which
  /// all its ranks give it up. Null: it cannot be.
  using IsCancelled = std::function<bool()>;
  /// Collective over the ranks that `channel` joined.
  static Result<std::unique_ptr<Comm>> create(std::unique_ptr<Channel> channel, const CommOptions& options,
                                              const IsCancelled& is_cancelled = {});
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t ranks() const { return ranks_; }
  /// The communicator's error, also one of which only this rank's GPU knows so far. From any thread.
  Status sticky() const { return has_failed() ? watch_->sticky() : Status(); }
  const CommOptions& options() const { return options_; }
  const FlightRecorder& flight_recorder() const { return *recorder_; }
  bool is_on_device() const { return device_ != nullptr; }
  const std::string& transport_name() const { return transport_name_; }
  /// Why the transport is not a faster one; "" where there is none.
  const std::string& transport_why() const { return transport_why_; }

  /// GPU ranks: what their calls are cut for.
  const ExchangeRates& exchange_rates() const { return device_->exchange_rates(); }

  /// The wire format of the calls that can have one and do not say, from wire_bytes() of their larger buffer on.
  WireFormat wire() const { return *options_.wire; }
  std::size_t wire_bytes() const {
    constexpr std::size_t least = 16 << 10;  // in less, what shares a block with other values is seldom alike
    const std::size_t pays = device_ ? device_->wire_pays_bytes() : 0;
    return options_.wire_bytes.value_or(std::max(least, pays));
  }

  /// Call this for every collective before begin() or run(), and before any call of its group begins.
  Status prepare(const Call& call);
  /// Runs `work`; running out of memory fails the operation and tells the peers.
  template <class F>
  std::invoke_result_t<F> or_out_of_memory(F&& work) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return tl::unexpected(raise_out_of_memory());
    }
  }
  /// Tells ranks that wait for this one in a split or registration that it gave up. No further set-up calls are
  /// possible; collectives still work.
  void give_up_set_up(const Error& error);
  template <class F>
  std::invoke_result_t<F> or_tell_out_of_memory(F&& work) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      give_up_set_up({Code::out_of_memory, "no memory left"});
      throw;
    }
  }
  /// Begins, steps and waits until done. Calls are valid (validate()).
  Status run(const Call& call);
  Status run_message(const Call& call);  ///< a send or a receive on its own
  Status begin(const Call& call);
  /// Begins the first of a group's collectives, and those after it that go along. How many.
  Result<std::size_t> begin_first_of(std::span<Call> group);
  /// Whether sends and receives of one group fit together, as far as this rank alone can tell.
  Status check_messages(std::span<const Call> calls) const;
  /// Such ones, all in flight together.
  Status begin_messages(std::span<const Call> calls);
  /// Host ranks: likewise and until done, of messages that come and go in pieces of at most slot_bytes(), and are
  /// numbered as they stand there.
  Status run_messages(std::span<const Call> calls, MessagePieces& pieces);
  /// Host ranks: what their thread may do while it waits for something else, so that less is left for the next call.
  void receive_early() { transport_->receive_early(); }
  std::size_t slot_bytes() const { return transport_->slot_bytes(); }
  /// GPU ranks: what comes next on the stream of `then` waits for what is on that of `first` now.
  Status order_streams(const Call& first, const Call& then);
  using State = HostProgram::State;
  Result<State> step();
  /// Until this rank's GPU, if any, has done all that has begun; then sticky(). From any thread.
  Status await_device() const;
  /// Whether the GPU has done all; not, where that cannot be told. From any thread.
  bool is_idle() const { return !device_ || device_->is_idle() == true; }
  /// Waits a little for others to advance the operation in progress.
  Status pause();

  /// Joins the ranks of the same color, ordered by (key, rank); nullptr for a negative color. Collective.
  Result<std::unique_ptr<Comm>> split(int color, int key, const CommOptions& options,
                                      const IsCancelled& is_cancelled = {});
  /// Joins those of its ranks that `remaining` lists, in ascending order. Collective over these alone, and independent
  /// of how this communicator fares.
  Result<std::unique_ptr<Comm>> shrink(const std::vector<std::uint32_t>& remaining, CommOptions options,
                                       const Wait& wait) const;
  /// From any thread.
  void abort();
  /// Tells peers that the process ends, and waits for as long as that until they have heard it.
  void announce_exit(const Deadline& deadline);
  /// Ends it in this error, unless there is one already. From any thread.
  void fail_in(const Error& error) { watch_->raise(error); }

  /// Collective: memory that peers may read in place, under a handle from next_handle().
  Status register_memory(std::uint64_t handle, void* pointer, std::size_t bytes);
  std::uint64_t next_handle() { return registrations_.next_handle(); }
  Status deregister_memory(std::uint64_t handle);
  /// GPU ranks: likewise of what no call can have used yet; waits for nothing.
  void forget_memory(std::uint64_t handle);
  bool has_registrations() const { return !registrations_.is_empty(); }
  bool is_registered(const void* pointer, std::size_t bytes) const;

  struct PremulOp {
    DataType type;
    PremulScalar scalar;
  };
  std::uint32_t add_premul(const PremulOp& op);
  Status remove_premul(std::uint32_t id);
  const PremulOp* find_premul(std::uint32_t id) const;

 private:
  explicit Comm(std::unique_ptr<Channel> channel);
  Status read_settings(const Environment& environment);
  Status open_transport(const Environment& environment, const Deadline& deadline);
  std::vector<RankName> rank_names() const;
  void make_recorder(const std::vector<RankControl*>& controls, std::uint64_t communicator);
  void make_watch(OpenTransport open, bool oversubscribed);
  struct Devices {
    std::vector<std::string> bus_ids;  ///< of the ranks' GPUs; host ranks: empty ones
    bool are_of_one_host = true;
  };
  /// Whether the ranks are GPU ranks or host ranks together. Collective.
  Result<Devices> agree_on_devices(const Deadline& deadline);
  DeviceRank::Request device_request(const std::vector<std::string>& bus_ids);
  Status open_device(const Deadline& deadline, const IsCancelled& is_cancelled);
  /// GPU ranks of several hosts.
  Status open_hosts(const Deadline& deadline, const IsCancelled& is_cancelled);
  /// Gives a descriptor to all ranks of the host, and theirs to this one. Collective.
  Result<std::vector<UniqueFd>> exchange_descriptors(int fd, const Deadline& deadline);
  /// One, or several that go along with the first.
  Status begin_on_device(std::span<const Call> calls);
  /// Of a GPU rank's call: the capture's number, 0 if it is not captured. What its stream refuses (Code::invalid_usage)
  /// changes nothing; all else that a GPU reports instead is news to the peers.
  Result<std::uint64_t> capture_of(const Call& call);
  /// Of a group's messages: whether all are in one capture, or in none.
  Status check_streams(std::span<const Call> messages);
  /// The result of a launch, with what was launched if it failed. `number`: of a collective, as it would be counted.
  Status launched(const Call& call, std::uint64_t number, Status result);
  /// `carried`: what moves the data, `call` itself or one of the exchanges of a quantised call.
  Status begin_on_host(const Call& call, const Call& carried);
  Status begin_messages_on_host(std::span<const Call> calls, MessagePieces* pieces);
  Status begin_quantized(const Call& call);
  /// The next exchange of the quantised call in progress, if any.
  Result<bool> begin_next_exchange();
  Call premultiplied(const Call& call);
  /// Joins with that unique id, for a split; nullptr where it is null. All ranks of this communicator take part: a rank
  /// that cannot join is news to all at once.
  Result<std::unique_ptr<Channel>> join_part(const std::array<std::byte, unique_id_bytes>* id, JoinOptions place,
                                             const Deadline& deadline);
  /// An error if one of them, which has yet to come, will not.
  Status check_will_come(const std::vector<std::uint32_t>& remaining) const;
  Result<std::unique_ptr<Channel>> rejoin_living(const std::vector<std::uint32_t>& remaining, const Wait& wait) const;
  Status register_on_all(std::uint64_t handle, void* pointer, std::size_t bytes);
  Status register_with_all(std::uint64_t number, void* pointer, std::size_t bytes, const Deadline& deadline);
  bool has_failed() const {
    if (device_) device_->hear_of_failures();
    return watch_->has_failed();
  }
  /// sticky(). Ranks that wait on the channel are told of it, too.
  Status failure();
  /// What ends waits on the channel: a failure of the communicator, or that is_cancelled() says so.
  std::function<Status()> news_of(const IsCancelled& is_cancelled) const;
  /// From now on they end so.
  void heed(const IsCancelled& is_cancelled);
  Result<std::unique_ptr<Comm>> make_part(int color, int key, const CommOptions& options,
                                          const IsCancelled& is_cancelled);
  /// Whether all ranks are well; else the first one's error, as "rank 1 (...) cannot <what>: ...".
  Status agree(const Status& own, const std::string& what, const Deadline& deadline);
  /// Of a set-up call of all ranks that has failed on this one: the communicator's failure, of which what reached this
  /// rank first may be a consequence; or that another rank called something else; success: neither.
  Status cause_of(const Error& error, SetUpCall call);
  Status death_behind(const Error& error) const;
  /// First of all in such a call: whether all ranks make the same one.
  Status begin_set_up(SetUpCall call, const Deadline& deadline);

  void prepare_exit();
  Status finish();
  Error raise_out_of_memory();
  /// Ends the operation in progress in this error, or the one that was before it, which it returns.
  Error end_in(Error error);
  /// Of a communicator that has failed: until no other rank reads or writes what this one's calls were given.
  void abandon();
  /// The number of the one in progress, equal on all its ranks: messages have that between two collectives.
  std::uint64_t operation() const { return 2 * sequence_ + (is_collective_ ? 1 : 2); }
  Result<State> progress();
  /// Whether the other ranks' calls were there to be compared.
  Result<bool> compare_with_heard();
  Result<HostProgram*> find_program(const Call& call);
  Result<std::unique_ptr<HostProgram>> make_program(const Call& call);
  Result<std::unique_ptr<HostProgram>> make_block_program(const Call& call) const;
  SelectQuery query_for(const Call& call) const;
  /// Whether the ranks can carry the call out as its options ask.
  Status check_algorithm(const Call& call) const;
  bool streams(const Call& call) const;
  void begin_waiting();
  Watch::Waiting waiting() const;

  struct ProgramKey {
    CallSignature signature;
    bool in_place;
    friend bool operator==(const ProgramKey&, const ProgramKey&) = default;
  };
  struct ProgramKeyHash {
    std::size_t operator()(const ProgramKey& key) const;
  };

  std::unique_ptr<Channel> channel_;
  std::uint32_t rank_ = 0;
  std::uint32_t ranks_ = 1;
  CommOptions options_;
  std::uint32_t cores_ = 0;        ///< of all ranks' hosts together
  std::uint32_t least_cores_ = 0;  ///< a rank's share of them, on the host where that is smallest
  double least_network_gbps_ = 0;  ///< likewise of what the network carries; 0: unknown
  std::size_t last_level_cache_bytes_ = 0;
  SelectOptions select_options_;  ///< by environment
  Tuning tuning_;                 ///< until the selector has it
  Selector selector_;
  bool all_in_one_process_ = false;
  Simd simd_ = Simd::portable;
  std::unique_ptr<Transport> transport_;
  std::string transport_name_;
  std::string transport_why_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<FlightRecorder> recorder_;
  std::unique_ptr<DeviceRank> device_;              ///< GPU ranks
  std::atomic<DeviceRank*> asked_device_{nullptr};  ///< the same, for other threads

  std::unordered_map<ProgramKey, std::unique_ptr<HostProgram>, ProgramKeyHash> programs_;
  ProgramKey last_key_{};
  HostProgram* last_program_ = nullptr;

  // The operation in progress.
  std::uint64_t sequence_ = 0;  ///< of collectives; of GPU ranks those that are not captured
  bool has_captured_ = false;   ///< GPU ranks: a collective
  CallSignature signature_;
  bool hears_all_ = false;  ///< it cannot complete before every rank has taken part
  struct Unheard {
    std::uint64_t sequence;
    CallSignature signature;
  };
  std::optional<Unheard> unheard_;  ///< the last collective that may have completed without hearing from all ranks
  bool is_collective_ = false;
  std::unique_ptr<HostProgram> own_program_;  ///< of an operation whose program is not kept
  HostProgram* program_ = nullptr;
  Watch::Backoff backoff_;
  bool has_waited_ = false;
  std::chrono::steady_clock::time_point began_{};  ///< where operations have a deadline

  Registrations registrations_;
  Deadline device_deadline_ = Deadline::never();  ///< of what device_ asks the other ranks
  QuantizedCall quantized_;
  std::unique_ptr<std::byte[]> contribution_;  ///< this rank's, to a premul_sum
  std::size_t contribution_bytes_ = 0;
  /// For the words that tell of it once there is no other left.
  std::unique_ptr<std::byte[]> last_memory_ = std::make_unique<std::byte[]>(16 << 10);
  std::map<std::uint32_t, PremulOp> premul_ops_;
};

}  // namespace strait
