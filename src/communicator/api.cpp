// The C interface: arguments in, a Call or a question to a Comm out, errors kept for straitGetLastError.
#include <array>
#include <cstring>
#include <functional>
#include <new>
#include <string>

#include "base/environment.hpp"
#include "bootstrap/launch.hpp"
#include "communicator/comm.hpp"
#include "communicator/group.hpp"
#include "strait/strait.h"
#include "transports/shm/shared_heap.hpp"

using strait::Call;
using strait::Code;
using strait::Collective;
using strait::Comm;
using strait::Error;
using strait::Group;
using strait::Result;
using strait::Status;

/// A live handle carries the mark; a destroyed or foreign pointer most likely does not.
struct straitComm {
  static constexpr std::uint64_t live = 0x5374726169744c69ull;
  std::uint64_t mark = live;
  std::unique_ptr<Comm> comm;
};

namespace {

static_assert(int(Code::success) == straitSuccess && int(Code::invalid_argument) == straitInvalidArgument &&
              int(Code::invalid_usage) == straitInvalidUsage && int(Code::system_error) == straitSystemError &&
              int(Code::cuda_error) == straitCudaError && int(Code::internal_error) == straitInternalError &&
              int(Code::remote_error) == straitRemoteError && int(Code::mismatch) == straitMismatch &&
              int(Code::timeout) == straitTimeout && int(Code::aborted) == straitAborted &&
              int(Code::unsupported) == straitUnsupported && int(Code::out_of_memory) == straitOutOfMemory &&
              int(Code::in_progress) == straitInProgress);
static_assert(strait::unique_id_bytes == STRAIT_UNIQUE_ID_BYTES);

thread_local std::string last_error = "no error";

straitResult_t result_of(const Error& error) {
  last_error = error.message;
  return static_cast<straitResult_t>(error.code);
}

straitResult_t result_of(const Status& status) { return status ? straitSuccess : result_of(status.error()); }

straitResult_t invalid(std::string message) { return result_of(Error{Code::invalid_argument, std::move(message)}); }

/// Nothing thrown (the one thing that is: bad_alloc) crosses the C interface.
template <class F>
straitResult_t guarded(F&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";  // short enough to need none
    return straitOutOfMemory;
  } catch (const std::exception& e) {
    try {
      return result_of(Error{Code::internal_error, e.what()});
    } catch (...) {
      return straitInternalError;
    }
  }
}

Result<Comm*> comm_of(straitComm_t handle) {
  if (handle == nullptr) return strait::fail(Code::invalid_argument, "the communicator is NULL");
  if (handle->mark != straitComm::live || !handle->comm)
    return strait::fail(Code::invalid_argument, "this is not a communicator, or it was destroyed or never completed");
  return handle->comm.get();
}

template <class F>
straitResult_t with_comm(straitComm_t handle, F&& body) noexcept {
  return guarded([&] {
    auto comm = comm_of(handle);
    if (!comm) return result_of(comm.error());
    return body(**comm);
  });
}

Result<strait::CommOptions> read_config(const straitConfig_t* config) {
  strait::CommOptions options;
  if (config == nullptr) return options;
  straitConfig_t known = STRAIT_CONFIG_INITIALIZER;
  if (config->magic != STRAIT_CONFIG_MAGIC || config->size_bytes < offsetof(straitConfig_t, init_timeout_ms))
    return strait::fail(Code::invalid_argument,
                        "the configuration is not initialised. Start from STRAIT_CONFIG_INITIALIZER");
  std::memcpy(&known, config, std::min(sizeof known, config->size_bytes));
  if (known.device >= 0)
    return strait::fail(Code::unsupported, "device " + std::to_string(known.device) +
                                               " was asked for, and this build has no GPU data path. Use device -1 for "
                                               "host ranks");
  if (known.init_timeout_ms < 0 || known.timeout_ms < 0)
    return strait::fail(Code::invalid_argument, "timeouts in the configuration must not be negative");
  options.init_timeout_ms = known.init_timeout_ms;
  options.timeout_ms = known.timeout_ms;
  return options;
}

Result<strait::Deadline> init_deadline(const strait::CommOptions& options) {
  std::int64_t timeout_ms = options.init_timeout_ms;
  if (timeout_ms == 0) {
    STRAIT_ASSIGN(timeout_ms, strait::Environment().integer("STRAIT_INIT_TIMEOUT_MS"));
  }
  return strait::Deadline::after_ms(timeout_ms);
}

Status make_comm(straitComm& handle, Result<std::unique_ptr<strait::Channel>> channel,
                 const strait::CommOptions& options) {
  if (!channel) return tl::unexpected(std::move(channel).error());
  STRAIT_ASSIGN(handle.comm, Comm::create(std::move(*channel), options));
  return {};
}

/// Checks the arguments of straitCommInitRank. The result joins, and fills in `fresh`.
Result<std::function<Status()>> prepare_init(const straitComm_t* handle, int ranks, const straitUniqueId* id, int rank,
                                             const straitConfig_t* config, straitComm& fresh) {
  const auto refuse = [](const std::string& problem) {
    return strait::fail(Code::invalid_argument, "straitCommInitRank: " + problem);
  };
  if (handle == nullptr) return refuse("the communicator pointer is NULL");
  if (id == nullptr) return refuse("the unique id is NULL");
  if (ranks < 1) return refuse(std::to_string(ranks) + " ranks; there must be at least 1");
  if (rank < 0 || rank >= ranks)
    return refuse("rank " + std::to_string(rank) + " is not in 0 to " + std::to_string(ranks - 1));
  STRAIT_ASSIGN(const auto options, read_config(config));
  STRAIT_ASSIGN(const auto unpacked, strait::unpack_unique_id(std::as_bytes(std::span(id->internal))));
  return [&fresh, ranks, rank, options, unpacked]() -> Status {
    STRAIT_ASSIGN(const auto deadline, init_deadline(options));
    strait::JoinOptions join;
    join.rank = rank;
    join.ranks = ranks;
    join.wait.deadline = deadline;
    return make_comm(fresh, strait::join(unpacked, join), options);
  };
}

/// Fills in type and operation, of which user-made ones are looked up.
Status set_types(Call& call, Comm& comm, straitDataType_t type, int op) {
  if (type < 0 || static_cast<int>(type) >= strait::data_type_count)
    return strait::fail(Code::invalid_argument, std::string(name(call.collective)) + ": " + std::to_string(type) +
                                                    " is no data type (straitDataType_t)");
  call.type = static_cast<strait::DataType>(type);
  if (op >= straitSum && op <= straitAvg) {
    call.op = static_cast<strait::ReduceOp>(op);
    return {};
  }
  const auto* premul = op > straitAvg ? comm.find_premul(static_cast<std::uint32_t>(op - straitAvg - 1)) : nullptr;
  if (premul == nullptr)
    return strait::fail(Code::invalid_argument, std::string(name(call.collective)) + ": " + std::to_string(op) +
                                                    " is no reduction of this communicator (straitRedOp_t)");
  if (premul->type != call.type)
    return strait::fail(Code::invalid_argument,
                        std::string(name(call.collective)) + ": the reduction was created for " +
                            std::string(name(premul->type)) + ", not " + std::string(name(call.type)));
  call.op = strait::ReduceOp::premul_sum;
  call.premul_scalar = premul->scalar;
  return {};
}

/// Validates the call, then runs it, or records it in the open group.
Status submit(Comm& comm, Call& call, straitDataType_t type, int op) {
  STRAIT_TRY(set_types(call, comm, type, op));
  STRAIT_TRY(validate(call, comm.rank(), comm.ranks()));
  if (comm.has_registrations() && call.collective != Collective::send_recv &&
      call.collective != Collective::all_to_all_v) {
    const auto sizes = buffer_sizes(call, comm.rank(), comm.ranks());
    call.registered =
        comm.is_registered(call.send, sizes.send_bytes) && comm.is_registered(call.receive, sizes.receive_bytes);
  }
  Group& group = Group::of_this_thread();
  if (group.is_open()) {
    group.add(comm, call);
    return {};
  }
  if (call.collective == Collective::send_recv) return comm.run_message(call);
  return comm.run(call);
}

/// The result of a call that may stand in a group, which its error spoils.
straitResult_t result_in_group(const Status& status) {
  if (!status && Group::of_this_thread().is_open()) Group::of_this_thread().refuse(status.error());
  return result_of(status);
}

straitResult_t collective(straitComm_t handle, Call call, straitDataType_t type, int op = straitSum) noexcept {
  return guarded([&] {
    const auto comm = comm_of(handle);
    return result_in_group(comm ? submit(**comm, call, type, op) : Status(tl::unexpected(comm.error())));
  });
}

Call make_call(Collective kind, const void* send, void* receive, std::size_t count, int root = 0) {
  Call call;
  call.collective = kind;
  call.send = send;
  call.receive = receive;
  call.count = count;
  call.root = static_cast<std::uint32_t>(root);
  return call;
}

}  // namespace

straitResult_t straitGetVersion(int* version) {
  if (version == nullptr) return invalid("straitGetVersion: the pointer is NULL");
  *version = STRAIT_VERSION;
  return straitSuccess;
}

const char* straitGetErrorString(straitResult_t result) {
  static constexpr std::array<const char*, 13> texts = {
      "success",        "invalid argument", "invalid usage",        "system error", "CUDA error",
      "internal error", "remote error",     "mismatched calls",     "timeout",      "aborted",
      "unsupported",    "out of memory",    "operation in progress"};
  const auto index = static_cast<std::size_t>(result);
  return index < texts.size() ? texts[index] : "unknown result";
}

const char* straitGetLastError(straitComm_t handle) {
  (void)guarded([&] {
    if (auto comm = comm_of(handle); handle != nullptr && comm)
      if (const Status sticky = (*comm)->watch().sticky(); !sticky) last_error = sticky.error().message;
    return straitSuccess;
  });
  return last_error.c_str();
}

straitResult_t straitMemAlloc(void** pointer, size_t size_bytes) {
  return guarded([&] {
    if (pointer == nullptr) return invalid("straitMemAlloc: the pointer is NULL");
    auto heap = strait::shm::SharedHeap::instance();
    if (!heap) return result_of(heap.error());
    auto block = (*heap)->allocate(size_bytes);
    if (!block) return result_of(block.error());
    *pointer = *block;
    return straitSuccess;
  });
}

straitResult_t straitMemFree(void* pointer) {
  return guarded([&] {
    if (pointer == nullptr) return straitSuccess;
    auto heap = strait::shm::SharedHeap::instance();
    if (!heap) return result_of(heap.error());
    return result_of((*heap)->release(pointer));
  });
}

straitResult_t straitGetUniqueId(straitUniqueId* id) {
  return guarded([&] {
    if (id == nullptr) return invalid("straitGetUniqueId: the pointer is NULL");
    auto deadline = init_deadline({});
    if (!deadline) return result_of(deadline.error());
    strait::RootOptions root;
    root.deadline = *deadline;
    auto made = strait::create_unique_id(strait::Environment(), std::move(root));
    if (!made) return result_of(made.error());
    const auto packed = made->pack();
    std::memcpy(id->internal, packed.data(), packed.size());
    return straitSuccess;
  });
}

straitResult_t straitCommInitRank(straitComm_t* handle, int ranks, const straitUniqueId* id, int rank,
                                  const straitConfig_t* config) {
  return guarded([&] {
    auto made = std::make_unique<straitComm>();
    const auto init = prepare_init(handle, ranks, id, rank, config, *made);
    if (!init) return result_in_group(tl::unexpected(init.error()));
    if (Group::of_this_thread().is_open()) {
      Group::of_this_thread().add_init(*init);
      *handle = made.release();
      return straitSuccess;
    }
    if (const Status status = (*init)(); !status) return result_of(status);
    *handle = made.release();
    return straitSuccess;
  });
}

straitResult_t straitCommInitEnv(straitComm_t* handle, const straitConfig_t* config) {
  return guarded([&] {
    if (handle == nullptr) return invalid("straitCommInitEnv: the communicator pointer is NULL");
    const auto options = read_config(config);
    if (!options) return result_of(options.error());
    const auto deadline = init_deadline(*options);
    if (!deadline) return result_of(deadline.error());
    auto made = std::make_unique<straitComm>();
    auto launch = strait::read_launch_environment(strait::Environment());
    if (!launch) return result_of(launch.error());
    strait::JoinOptions join;
    join.wait.deadline = *deadline;
    auto channel = strait::join_launched(*launch, std::move(join));
    if (const Status status = make_comm(*made, std::move(channel), *options); !status) return result_of(status);
    *handle = made.release();
    return straitSuccess;
  });
}

straitResult_t straitCommSplit(straitComm_t handle, int color, int key, straitComm_t* split,
                               const straitConfig_t* config) {
  return with_comm(handle, [&](Comm& comm) {
    if (split == nullptr) return invalid("straitCommSplit: the communicator pointer is NULL");
    const auto options = config == nullptr ? Result<strait::CommOptions>(comm.options()) : read_config(config);
    if (!options) return result_of(options.error());
    auto part = comm.split(color, key, *options);
    if (!part) return result_of(part.error());
    *split = nullptr;
    if (*part) {
      *split = new straitComm;
      (*split)->comm = std::move(*part);
    }
    return straitSuccess;
  });
}

straitResult_t straitCommDestroy(straitComm_t handle) {
  return guarded([&] {
    if (handle == nullptr) return straitSuccess;
    if (handle->mark != straitComm::live) return invalid("straitCommDestroy: this is not a communicator");
    if (Group::of_this_thread().uses(handle->comm.get()))
      return result_of(
          Error{Code::invalid_usage,
                "straitCommDestroy: the open group holds calls on this communicator. End the group first"});
    handle->mark = 0;
    delete handle;
    return straitSuccess;
  });
}

straitResult_t straitCommAbort(straitComm_t handle) {
  return with_comm(handle, [&](Comm& comm) {
    comm.abort();
    return straitSuccess;
  });
}

straitResult_t straitCommGetAsyncError(straitComm_t handle, straitResult_t* error) {
  return with_comm(handle, [&](Comm& comm) {
    if (error == nullptr) return invalid("straitCommGetAsyncError: the pointer is NULL");
    *error = result_of(comm.watch().sticky());
    return straitSuccess;
  });
}

straitResult_t straitCommCount(straitComm_t handle, int* ranks) {
  return with_comm(handle, [&](Comm& comm) {
    if (ranks == nullptr) return invalid("straitCommCount: the pointer is NULL");
    *ranks = static_cast<int>(comm.ranks());
    return straitSuccess;
  });
}

straitResult_t straitCommUserRank(straitComm_t handle, int* rank) {
  return with_comm(handle, [&](Comm& comm) {
    if (rank == nullptr) return invalid("straitCommUserRank: the pointer is NULL");
    *rank = static_cast<int>(comm.rank());
    return straitSuccess;
  });
}

straitResult_t straitCommDevice(straitComm_t handle, int* device) {
  return with_comm(handle, [&](Comm&) {
    if (device == nullptr) return invalid("straitCommDevice: the pointer is NULL");
    *device = -1;
    return straitSuccess;
  });
}

straitResult_t straitCommRegister(straitComm_t handle, void* pointer, size_t size_bytes, void** registration) {
  return with_comm(handle, [&](Comm& comm) {
    if (registration == nullptr) return invalid("straitCommRegister: the handle pointer is NULL");
    if (pointer == nullptr || size_bytes == 0) return invalid("straitCommRegister: there is no memory to register");
    auto made = comm.register_memory(pointer, size_bytes);
    if (!made) return result_of(made.error());
    *registration = reinterpret_cast<void*>(static_cast<std::uintptr_t>(*made));
    return straitSuccess;
  });
}

straitResult_t straitCommDeregister(straitComm_t handle, void* registration) {
  return with_comm(handle, [&](Comm& comm) {
    return result_of(comm.deregister_memory(reinterpret_cast<std::uintptr_t>(registration)));
  });
}

straitResult_t straitRedOpCreatePreMulSum(straitRedOp_t* op, const void* scalar, straitDataType_t datatype,
                                          straitComm_t handle) {
  return with_comm(handle, [&](Comm& comm) {
    if (op == nullptr || scalar == nullptr) return invalid("straitRedOpCreatePreMulSum: a pointer is NULL");
    if (datatype < 0 || static_cast<int>(datatype) >= strait::data_type_count)
      return invalid("straitRedOpCreatePreMulSum: " + std::to_string(datatype) + " is no data type");
    Comm::PremulOp made{static_cast<strait::DataType>(datatype), {}};
    std::memcpy(made.scalar.data(), scalar, size_bytes(made.type));
    *op = static_cast<straitRedOp_t>(straitAvg + 1 + static_cast<int>(comm.add_premul(made)));
    return straitSuccess;
  });
}

straitResult_t straitRedOpDestroy(straitRedOp_t op, straitComm_t handle) {
  return with_comm(handle, [&](Comm& comm) {
    if (static_cast<int>(op) <= straitAvg) return invalid("straitRedOpDestroy: built-in reductions stay");
    return result_of(comm.remove_premul(static_cast<std::uint32_t>(static_cast<int>(op) - straitAvg - 1)));
  });
}

straitResult_t straitAllReduce(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                               straitRedOp_t op, straitComm_t comm, straitStream_t) {
  return collective(comm, make_call(Collective::all_reduce, sendbuff, recvbuff, count), datatype, op);
}

straitResult_t straitAllGather(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                               straitComm_t comm, straitStream_t) {
  return collective(comm, make_call(Collective::all_gather, sendbuff, recvbuff, count), datatype);
}

straitResult_t straitReduceScatter(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                   straitRedOp_t op, straitComm_t comm, straitStream_t) {
  return collective(comm, make_call(Collective::reduce_scatter, sendbuff, recvbuff, count), datatype, op);
}

straitResult_t straitAllToAll(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                              straitComm_t comm, straitStream_t) {
  return collective(comm, make_call(Collective::all_to_all, sendbuff, recvbuff, count), datatype);
}

straitResult_t straitAllToAllv(const void* sendbuff, const size_t sendcounts[], const size_t senddispls[],
                               void* recvbuff, const size_t recvcounts[], const size_t recvdispls[],
                               straitDataType_t datatype, straitComm_t handle, straitStream_t) {
  return guarded([&] {
    const auto comm = comm_of(handle);
    if (!comm) return result_in_group(tl::unexpected(comm.error()));
    if (sendcounts == nullptr || senddispls == nullptr || recvcounts == nullptr || recvdispls == nullptr)
      return result_in_group(
          strait::fail(Code::invalid_argument, "all-to-all-v: an array of counts or offsets is NULL"));
    const std::size_t ranks = (*comm)->ranks();
    Call call = make_call(Collective::all_to_all_v, sendbuff, recvbuff, 0);
    call.send_counts.assign(sendcounts, sendcounts + ranks);
    call.send_offsets.assign(senddispls, senddispls + ranks);
    call.receive_counts.assign(recvcounts, recvcounts + ranks);
    call.receive_offsets.assign(recvdispls, recvdispls + ranks);
    return collective(handle, std::move(call), datatype);
  });
}

straitResult_t straitBroadcast(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype, int root,
                               straitComm_t comm, straitStream_t) {
  return collective(comm, make_call(Collective::broadcast, sendbuff, recvbuff, count, root), datatype);
}

straitResult_t straitReduce(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                            straitRedOp_t op, int root, straitComm_t comm, straitStream_t) {
  return collective(comm, make_call(Collective::reduce, sendbuff, recvbuff, count, root), datatype, op);
}

straitResult_t straitGather(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype, int root,
                            straitComm_t comm, straitStream_t) {
  return collective(comm, make_call(Collective::gather, sendbuff, recvbuff, count, root), datatype);
}

straitResult_t straitScatter(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype, int root,
                             straitComm_t comm, straitStream_t) {
  return collective(comm, make_call(Collective::scatter, sendbuff, recvbuff, count, root), datatype);
}

straitResult_t straitSend(const void* sendbuff, size_t count, straitDataType_t datatype, int peer, straitComm_t comm,
                          straitStream_t) {
  Call call = make_call(Collective::send_recv, sendbuff, nullptr, count);
  call.sends = true;
  call.peer = static_cast<std::uint32_t>(peer);
  return collective(comm, std::move(call), datatype);
}

straitResult_t straitRecv(void* recvbuff, size_t count, straitDataType_t datatype, int peer, straitComm_t comm,
                          straitStream_t) {
  Call call = make_call(Collective::send_recv, nullptr, recvbuff, count);
  call.peer = static_cast<std::uint32_t>(peer);
  return collective(comm, std::move(call), datatype);
}

straitResult_t straitBarrier(straitComm_t comm, straitStream_t) {
  return collective(comm, make_call(Collective::barrier, nullptr, nullptr, 0), straitUint8);
}

straitResult_t straitGroupStart() {
  Group::of_this_thread().start();
  return straitSuccess;
}

straitResult_t straitGroupEnd() {
  return guarded([&] { return result_of(Group::of_this_thread().end()); });
}
