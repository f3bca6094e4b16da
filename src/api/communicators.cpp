// The C interface: making and ending communicators, and queries of them.
#include "api/api.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>

#include "api/group.hpp"
#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/stages.hpp"
#include "bootstrap/launch.hpp"
#include "communicator/init_watch.hpp"
#include "device/device_links.hpp"

namespace strait::api {
namespace {

Result<CommOptions> read_config(const straitConfig_t* config) {
  CommOptions options;
  if (config == nullptr) return options;
  straitConfig_t known = STRAIT_CONFIG_INITIALIZER;
  if (config->magic != STRAIT_CONFIG_MAGIC || config->size_bytes < offsetof(straitConfig_t, init_timeout_ms))
    return fail(Code::invalid_argument, "the configuration is not initialised. Start from STRAIT_CONFIG_INITIALIZER");
  std::memcpy(&known, config, std::min(sizeof known, config->size_bytes));
  if (known.init_timeout_ms < 0 || known.timeout_ms < 0)
    return fail(Code::invalid_argument, "timeouts in the configuration must not be negative");
  options.init_timeout_ms = known.init_timeout_ms;
  if (known.device < -1)
    return fail(Code::invalid_argument, "device " + std::to_string(known.device) + " is none; -1 means a host rank");
  if (known.device >= 0) STRAIT_TRY(check_devices_supported(known.device));
  options.timeout_ms = std::min(known.timeout_ms, Deadline::longest_ms);
  options.device = known.device;
  const auto sms = sms_of(known.max_sms);
  if (!sms) return fail(Code::invalid_argument, "max_sms in the configuration " + sms.error().message);
  options.gpu.max_sms = *sms;
  STRAIT_ASSIGN(options.wire, wire_of(known.wire));
  return options;
}

Comm::IsCancelled cancellation_of(const straitComm& handle) {
  return [&handle] { return handle.is_cancelled.load(); };
}

Status make_comm(straitComm& handle, Result<std::unique_ptr<Channel>> channel, const CommOptions& options,
                 InitWatch& init) {
  if (!channel) return tl::unexpected(std::move(channel).error());
  STRAIT_ASSIGN(auto comm, Comm::create(std::move(*channel), options, cancellation_of(handle), &init.progress()));
  init.succeed();
  handle.complete(std::move(comm));
  return {};
}

/// The part of a call that waits for other ranks, run after its arguments were checked.
using SetUp = std::function<Status()>;

/// Runs set-up work, or defers it to the end of the open group, because one thread may drive several ranks, which wait
/// for one another. `comm` is null if there is no communicator yet. The caller writes its outputs immediately, so the
/// program's pointers need not outlive the call.
straitResult_t run_or_record(Comm* comm, Result<SetUp> set_up) {
  if (!set_up) return result_in_group(tl::unexpected(set_up.error()));
  Group& group = Group::of_this_thread();
  if (!group.is_open()) return result_of((*set_up)());
  group.add_set_up(comm, std::move(*set_up));
  return straitSuccess;
}

/// Runs a call that may be made in a group, and makes the group fail if memory runs out.
template <class F>
straitResult_t recorded(F&& body) noexcept {
  return guarded([&] {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      // Fits into std::string's internal buffer: no allocation.
      return result_in_group(strait::fail(Code::out_of_memory, "out of memory"));
    }
  });
}

/// As above, for a call that all ranks of a communicator make: if memory runs out, the other ranks are told.
template <class F>
straitResult_t recorded(straitComm_t handle, F&& body) noexcept {
  return recorded([&] {
    const auto comm = comm_of(handle);
    if (!comm) return result_in_group(tl::unexpected(comm.error()));
    return (*comm)->or_tell_out_of_memory([&] { return body(**comm); });
  });
}

/// Checks the arguments of straitCommInitRank. The returned work completes `fresh`.
Result<SetUp> prepare_init(const straitComm_t* handle, straitComm& fresh, int ranks, const straitUniqueId* id, int rank,
                           const straitConfig_t* config) {
  const auto refuse = [](const std::string& problem) {
    return fail(Code::invalid_argument, "straitCommInitRank: " + problem);
  };
  if (handle == nullptr) return refuse("the communicator pointer is NULL");
  if (id == nullptr) return refuse("the unique id is NULL");
  if (ranks < 1 || ranks > most_ranks)
    return refuse(std::to_string(ranks) + " ranks; there must be 1 to " + std::to_string(most_ranks));
  if (rank < 0 || rank >= ranks)
    return refuse("rank " + std::to_string(rank) + " is not in 0 to " + std::to_string(ranks - 1));
  STRAIT_ASSIGN(const auto options, read_config(config));
  STRAIT_ASSIGN(const auto unpacked, unpack_unique_id(std::as_bytes(std::span(id->internal))));
  return [&fresh, ranks, rank, options, unpacked]() -> Status {
    STRAIT_ASSIGN(const auto deadline, init_deadline(options));
    InitWatch init("straitCommInitRank", deadline, {rank, ranks});
    JoinOptions join;
    join.rank = rank;
    join.ranks = ranks;
    join.wait = {deadline, &fresh.is_cancelled};
    join.progress = &init.progress();
    join.own_settings = check_shared_values(join.environment);
    Stages stages;
    auto channel = strait::join(unpacked, join);
    stages.done("join");
    log_trace(rank, "set-up: " + stages.text());
    return make_comm(fresh, std::move(channel), options, init);
  };
}

Result<SetUp> prepare_split(Comm& comm, int color, int key, const straitComm_t* split, straitComm& fresh,
                            const straitConfig_t* config) {
  if (split == nullptr) return fail(Code::invalid_argument, "straitCommSplit: the communicator pointer is NULL");
  CommOptions options = comm.options();
  if (config != nullptr) {
    STRAIT_ASSIGN(options, read_config(config));
  }
  return [&comm, color, key, fresh = color < 0 ? nullptr : &fresh, options]() -> Status {
    const auto is_cancelled = fresh != nullptr ? cancellation_of(*fresh) : Comm::IsCancelled();
    STRAIT_ASSIGN(auto part, comm.split(color, key, options, is_cancelled));
    if (fresh != nullptr) fresh->complete(std::move(part));
    return {};
  };
}

/// Returns the ranks of `comm` except those in `excluded` (which may be empty).
Result<std::vector<std::uint32_t>> remaining_ranks(const Comm& comm, std::span<const int> excluded) {
  std::vector<bool> remains(comm.ranks(), true);
  for (const int rank : excluded) {
    if (rank < 0 || static_cast<std::uint32_t>(rank) >= comm.ranks())
      return fail(Code::invalid_argument, "straitCommShrink: rank " + std::to_string(rank) + " is not in 0 to " +
                                              std::to_string(comm.ranks() - 1));
    remains[static_cast<std::size_t>(rank)] = false;
  }
  if (!remains[comm.rank()])
    return fail(Code::invalid_argument, "straitCommShrink: this rank, " + std::to_string(comm.rank()) +
                                            ", is to be left out, and must not call then");
  std::vector<std::uint32_t> remaining;
  for (std::uint32_t rank = 0; rank < comm.ranks(); ++rank)
    if (remains[rank]) remaining.push_back(rank);
  return remaining;
}

Result<SetUp> prepare_shrink(const Comm& comm, const int* excluded, int count, const straitComm_t* smaller,
                             straitComm& fresh, const straitConfig_t* config) {
  if (smaller == nullptr) return fail(Code::invalid_argument, "straitCommShrink: the communicator pointer is NULL");
  if (count < 0 || (excluded == nullptr && count > 0))
    return fail(Code::invalid_argument, "straitCommShrink: there is no list of " + std::to_string(count) + " ranks");
  STRAIT_ASSIGN(const auto remaining, remaining_ranks(comm, {excluded, static_cast<std::size_t>(count)}));
  CommOptions options = comm.options();
  if (config != nullptr) {
    STRAIT_ASSIGN(options, read_config(config));
  }
  return [&comm, remaining, &fresh, options]() -> Status {
    STRAIT_ASSIGN(const auto deadline, init_deadline(options));
    STRAIT_ASSIGN(auto made, comm.shrink(remaining, options, {deadline, &fresh.is_cancelled}));
    fresh.complete(std::move(made));
    return {};
  };
}

Result<SetUp> prepare_register(Comm& comm, void* pointer, std::size_t size_bytes, void* const* out,
                               std::uint64_t handle) {
  if (out == nullptr) return fail(Code::invalid_argument, "straitCommRegister: the handle pointer is NULL");
  if (pointer == nullptr || size_bytes == 0)
    return fail(Code::invalid_argument, "straitCommRegister: there is no memory to register");
  if (size_bytes > ~std::uintptr_t{0} - reinterpret_cast<std::uintptr_t>(pointer))
    return fail(Code::invalid_argument,
                "straitCommRegister: " + std::to_string(size_bytes) + " bytes are more than memory can hold");
  return [&comm, pointer, size_bytes, handle] { return comm.register_memory(handle, pointer, size_bytes); };
}

/// Answers a query of a communicator: *to = question(comm).
template <class T, class F>
straitResult_t answer(const char* call, straitComm_t handle, T* to, F&& question) noexcept {
  return with_comm(handle, [&](Comm& comm) {
    if (to == nullptr) return invalid(std::string(call) + ": the pointer is NULL");
    *to = question(comm);
    return straitSuccess;
  });
}

}  // namespace
}  // namespace strait::api

using strait::Code;
using strait::Comm;
using strait::Error;
using strait::Group;
using strait::Status;
using namespace strait::api;

straitResult_t straitCommInitRank(straitComm_t* handle, int ranks, const straitUniqueId* id, int rank,
                                  const straitConfig_t* config) {
  return recorded([&] {
    auto made = std::make_unique<straitComm>();
    const auto result = run_or_record(nullptr, prepare_init(handle, *made, ranks, id, rank, config));
    if (result == straitSuccess) *handle = made.release();
    return result;
  });
}

straitResult_t straitCommInitEnv(straitComm_t* handle, const straitConfig_t* config) {
  return guarded([&] {
    if (handle == nullptr) return invalid("straitCommInitEnv: the communicator pointer is NULL");
    const auto options = read_config(config);
    if (!options) return result_of(options.error());
    const auto deadline = init_deadline(*options);
    if (!deadline) return result_of(deadline.error());
    strait::InitWatch init("straitCommInitEnv", *deadline);
    auto made = std::make_unique<straitComm>();
    auto launch = strait::read_launch_environment(strait::Environment());
    if (!launch) return result_of(launch.error());
    strait::JoinOptions join;
    join.wait.deadline = *deadline;
    join.progress = &init.progress();
    join.own_settings = check_shared_values(join.environment);
    auto channel = strait::join_launched(*launch, std::move(join));
    if (const Status status = make_comm(*made, std::move(channel), *options, init); !status) return result_of(status);
    *handle = made.release();
    return straitSuccess;
  });
}

straitResult_t straitCommSplit(straitComm_t handle, int color, int key, straitComm_t* split,
                               const straitConfig_t* config) {
  return recorded(handle, [&](Comm& comm) {
    auto made = std::make_unique<straitComm>();
    const auto result = run_or_record(&comm, prepare_split(comm, color, key, split, *made, config));
    if (result == straitSuccess) *split = color < 0 ? nullptr : made.release();
    return result;
  });
}

straitResult_t straitCommShrink(straitComm_t handle, const int* excluded, int count, straitComm_t* smaller,
                                const straitConfig_t* config) {
  return recorded([&] {
    const auto comm = comm_of(handle);
    if (!comm) return result_in_group(tl::unexpected(comm.error()));
    auto made = std::make_unique<straitComm>();
    const auto result = run_or_record(*comm, prepare_shrink(**comm, excluded, count, smaller, *made, config));
    if (result == straitSuccess) *smaller = made.release();
    return result;
  });
}

straitResult_t straitCommSynchronize(straitComm_t handle) {
  return with_comm(handle, [](Comm& comm) { return result_of(comm.await_device()); });
}

straitResult_t straitCommQuery(straitComm_t handle, int* done) {
  return answer("straitCommQuery", handle, done, [](Comm& comm) { return comm.is_idle() == true ? 1 : 0; });
}

straitResult_t straitCommDestroy(straitComm_t handle) {
  return guarded([&] {
    if (handle == nullptr) return straitSuccess;
    if (handle->mark != straitComm::live) return invalid("straitCommDestroy: this is not a communicator");
    if (handle->is_inherited()) {  // its resources are the parent's, and stay until this process ends
      handle->mark = 0;
      return straitSuccess;
    }
    const Group& group = Group::of_this_thread();
    if (handle->comm ? group.uses(handle->comm.get()) : group.is_open())
      return result_of(
          Error{Code::invalid_usage,
                "straitCommDestroy: the open group holds calls on this communicator. End the group first"});
    handle->mark = 0;
    handle->await_aborts();
    delete handle;
    return straitSuccess;
  });
}

straitResult_t straitCommAbort(straitComm_t handle) {
  return guarded([&] {
    if (handle == nullptr) return invalid("straitCommAbort: the communicator is NULL");
    if (handle->mark != straitComm::live)
      return invalid("straitCommAbort: this is not a communicator, or it was destroyed");
    if (handle->is_inherited()) return result_of(strait::fail_inherited("communicator").value());
    handle->abort();
    return straitSuccess;
  });
}

straitResult_t straitCommGetAsyncError(straitComm_t handle, straitResult_t* error) {
  return answer("straitCommGetAsyncError", handle, error, [](Comm& comm) { return result_of(comm.sticky()); });
}

straitResult_t straitCommDumpFlightRecorder(straitComm_t handle, const char* path) {
  return with_comm(handle, [&](Comm& comm) {
    const auto& recorder = comm.flight_recorder();
    const std::string reason = "straitCommDumpFlightRecorder";
    return result_of(path != nullptr ? recorder.dump(path, reason) : dump_to_folder(recorder, reason));
  });
}

straitResult_t straitCommCount(straitComm_t handle, int* ranks) {
  return answer("straitCommCount", handle, ranks, [](Comm& comm) { return static_cast<int>(comm.ranks()); });
}

straitResult_t straitCommUserRank(straitComm_t handle, int* rank) {
  return answer("straitCommUserRank", handle, rank, [](Comm& comm) { return static_cast<int>(comm.rank()); });
}

straitResult_t straitCommGetTransport(straitComm_t handle, const char** name, const char** why) {
  return with_comm(handle, [&](Comm& comm) {
    if (name == nullptr) return invalid("straitCommGetTransport: the pointer for the name is NULL");
    *name = comm.transport_name().c_str();
    if (why != nullptr) *why = comm.transport_why().c_str();
    return straitSuccess;
  });
}

straitResult_t straitCommDevice(straitComm_t handle, int* device) {
  return answer("straitCommDevice", handle, device, [](Comm& comm) { return comm.options().device; });
}

straitResult_t straitCommRegister(straitComm_t communicator, void* pointer, size_t size_bytes, void** out) {
  return recorded(communicator, [&](Comm& comm) {
    const std::uint64_t handle = comm.next_handle();
    const auto result = run_or_record(&comm, prepare_register(comm, pointer, size_bytes, out, handle));
    if (result == straitSuccess) *out = reinterpret_cast<void*>(static_cast<std::uintptr_t>(handle));
    return result;
  });
}

straitResult_t straitCommDeregister(straitComm_t communicator, void* handle) {
  return with_comm(communicator, [&](Comm& comm) {
    return result_of(comm.deregister_memory(reinterpret_cast<std::uintptr_t>(handle)));
  });
}
