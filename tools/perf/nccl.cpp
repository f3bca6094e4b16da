#include "perf/nccl.hpp"

#include "base/shared_library.hpp"

namespace strait::perf {
namespace {

constexpr int success = 0, in_progress = 7;
constexpr int symmetric_window = 1;  // NCCL_WIN_COLL_SYMMETRIC
constexpr int host_immediate = 1;    // ncclScalarHostImmediate

}  // namespace

struct Nccl::Functions {
  const char* (*error_string)(int) = nullptr;
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*init_rank)(Comm*, int, UniqueId, int) = nullptr;
  int (*init_all)(Comm*, int, const int*) = nullptr;
  int (*destroy)(Comm) = nullptr;
  int (*abort)(Comm) = nullptr;
  int (*async_error)(Comm, int*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, Comm, Stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int, Comm, Stream) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, Comm, Stream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int, int, Comm, Stream) = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int, int, int, Comm, Stream) = nullptr;
  int (*create_premul_sum)(int*, const void*, int, int, Comm) = nullptr;
  int (*destroy_op)(int, Comm) = nullptr;
  int (*send)(const void*, std::size_t, int, int, Comm, Stream) = nullptr;
  int (*recv)(void*, std::size_t, int, int, Comm, Stream) = nullptr;
  // From 2.19 and 2.27 on; null in older ones.
  int (*register_buffer)(Comm, void*, std::size_t, void**) = nullptr;
  int (*deregister_buffer)(Comm, void*) = nullptr;
  int (*register_window)(Comm, void*, std::size_t, void**, int) = nullptr;
  int (*deregister_window)(Comm, void*) = nullptr;
  // From 2.28 on.
  int (*all_to_all)(const void*, void*, std::size_t, int, Comm, Stream) = nullptr;
  int (*gather)(const void*, void*, std::size_t, int, int, Comm, Stream) = nullptr;
  int (*scatter)(const void*, void*, std::size_t, int, int, Comm, Stream) = nullptr;
};

Nccl::Nccl() : functions_(std::make_unique<Functions>()) {}
Nccl::~Nccl() = default;

Result<std::shared_ptr<const Nccl>> Nccl::load(const std::string& path) {
  SharedLibrary library(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);  // it has threads of its own
  if (!library.is_loaded()) return fail(Code::system_error, "cannot load the baseline: " + library.problem());
  std::shared_ptr<Nccl> nccl(new Nccl);
  nccl->path_ = path;
  Functions& f = *nccl->functions_;
  library.need(f.error_string, "ncclGetErrorString");
  library.need(f.get_version, "ncclGetVersion");
  library.need(f.get_unique_id, "ncclGetUniqueId");
  library.need(f.init_rank, "ncclCommInitRank");
  library.need(f.init_all, "ncclCommInitAll");
  library.need(f.destroy, "ncclCommDestroy");
  library.need(f.abort, "ncclCommAbort");
  library.need(f.async_error, "ncclCommGetAsyncError");
  library.need(f.group_start, "ncclGroupStart");
  library.need(f.group_end, "ncclGroupEnd");
  library.need(f.all_reduce, "ncclAllReduce");
  library.need(f.all_gather, "ncclAllGather");
  library.need(f.reduce_scatter, "ncclReduceScatter");
  library.need(f.broadcast, "ncclBroadcast");
  library.need(f.reduce, "ncclReduce");
  library.need(f.create_premul_sum, "ncclRedOpCreatePreMulSum");
  library.need(f.destroy_op, "ncclRedOpDestroy");
  library.need(f.send, "ncclSend");
  library.need(f.recv, "ncclRecv");
  library.find(f.register_buffer, "ncclCommRegister");
  library.find(f.deregister_buffer, "ncclCommDeregister");
  library.find(f.register_window, "ncclCommWindowRegister");
  library.find(f.deregister_window, "ncclCommWindowDeregister");
  library.find(f.all_to_all, "ncclAlltoAll");
  library.find(f.gather, "ncclGather");
  library.find(f.scatter, "ncclScatter");
  if (!library.missing().empty())
    return fail(Code::invalid_argument,
                "the baseline " + path + " lacks " + library.missing() + ". Name a libnccl.so.2");
  STRAIT_TRY(nccl->check(f.get_version(&nccl->version_), "ncclGetVersion"));
  return nccl;
}

Status Nccl::check(int result, const char* what) const {
  if (result == success) return {};
  return fail(Code::cuda_error, "the baseline's " + std::string(what) + " failed: " + functions_->error_string(result) +
                                    ". NCCL_DEBUG=WARN shows why");
}

Result<Nccl::UniqueId> Nccl::unique_id() const {
  UniqueId id;
  STRAIT_TRY(check(functions_->get_unique_id(&id), "ncclGetUniqueId"));
  return id;
}

Result<Nccl::Comm> Nccl::join(int ranks, const UniqueId& id, int rank) const {
  Comm comm = nullptr;
  STRAIT_TRY(check(functions_->init_rank(&comm, ranks, id, rank), "ncclCommInitRank"));
  return comm;
}

Result<std::vector<Nccl::Comm>> Nccl::join_all(const std::vector<int>& devices) const {
  std::vector<Comm> comms(devices.size());
  STRAIT_TRY(
      check(functions_->init_all(comms.data(), static_cast<int>(devices.size()), devices.data()), "ncclCommInitAll"));
  return comms;
}

void Nccl::destroy(Comm comm) const { functions_->destroy(comm); }
void Nccl::abort(Comm comm) const { functions_->abort(comm); }

Status Nccl::async_error(Comm comm) const {
  int error = success;
  STRAIT_TRY(check(functions_->async_error(comm, &error), "ncclCommGetAsyncError"));
  return error == in_progress ? Status() : check(error, "work on a GPU");
}

Result<Nccl::Registration> Nccl::register_memory(Comm comm, void* data, std::size_t size_bytes, bool symmetric) const {
  const Functions& f = *functions_;
  Registration registration{nullptr, symmetric};
  if (symmetric ? f.deregister_window == nullptr : f.deregister_buffer == nullptr)
    return fail(Code::unsupported, "the baseline is too old to register memory. Measure without -R");
  if (symmetric)
    STRAIT_TRY(check(f.register_window(comm, data, size_bytes, &registration.handle, symmetric_window),
                     "ncclCommWindowRegister"));
  else
    STRAIT_TRY(check(f.register_buffer(comm, data, size_bytes, &registration.handle), "ncclCommRegister"));
  return registration;
}

void Nccl::deregister(Comm comm, const Registration& registration) const {
  (registration.symmetric ? functions_->deregister_window : functions_->deregister_buffer)(comm, registration.handle);
}

Status Nccl::group_start() const { return check(functions_->group_start(), "ncclGroupStart"); }
Status Nccl::group_end() const { return check(functions_->group_end(), "ncclGroupEnd"); }

Status Nccl::call(const Arguments& a, Comm comm, Stream stream) const {
  if (a.op != ReduceOp::premul_sum) return call(a, static_cast<int>(a.op), comm, stream);
  int op = 0;
  STRAIT_TRY(check(functions_->create_premul_sum(&op, &a.premul_scalar, static_cast<int>(a.type), host_immediate, comm),
                   "ncclRedOpCreatePreMulSum"));
  Status called = call(a, op, comm, stream);
  Status destroyed = check(functions_->destroy_op(op, comm), "ncclRedOpDestroy");
  return called ? destroyed : called;
}

Status Nccl::call(const Arguments& a, int op, Comm comm, Stream stream) const {
  const Functions& f = *functions_;
  const int type = static_cast<int>(a.type);
  switch (a.collective) {
    case Collective::all_reduce:
      return check(f.all_reduce(a.send, a.receive, a.count, type, op, comm, stream), "ncclAllReduce");
    case Collective::all_gather:
      return check(f.all_gather(a.send, a.receive, a.count, type, comm, stream), "ncclAllGather");
    case Collective::reduce_scatter:
      return check(f.reduce_scatter(a.send, a.receive, a.count, type, op, comm, stream), "ncclReduceScatter");
    case Collective::broadcast:
      return check(f.broadcast(a.send, a.receive, a.count, type, a.root, comm, stream), "ncclBroadcast");
    case Collective::reduce:
      return check(f.reduce(a.send, a.receive, a.count, type, op, a.root, comm, stream), "ncclReduce");
    case Collective::all_to_all:
      if (f.all_to_all == nullptr) break;
      return check(f.all_to_all(a.send, a.receive, a.count, type, comm, stream), "ncclAlltoAll");
    case Collective::gather:
      if (f.gather == nullptr) break;
      return check(f.gather(a.send, a.receive, a.count, type, a.root, comm, stream), "ncclGather");
    case Collective::scatter:
      if (f.scatter == nullptr) break;
      return check(f.scatter(a.send, a.receive, a.count, type, a.root, comm, stream), "ncclScatter");
    case Collective::all_to_all_v:
    case Collective::send_recv:
      break;
    case Collective::barrier:
      return fail(Code::unsupported, "NCCL has no barrier");
  }
  STRAIT_TRY(group_start());
  Status posted = messages(a, comm, stream);
  Status ended = group_end();
  return posted ? ended : posted;
}

/// What one rank sends and receives, within a group.
Status Nccl::messages(const Arguments& a, Comm comm, Stream stream) const {
  const int type = static_cast<int>(a.type);
  const auto send = [&](std::size_t first, std::size_t count, int peer) {
    return check(functions_->send(offset(a.send, first, a.type), count, type, peer, comm, stream), "ncclSend");
  };
  const auto receive = [&](std::size_t first, std::size_t count, int peer) {
    return check(functions_->recv(offset(a.receive, first, a.type), count, type, peer, comm, stream), "ncclRecv");
  };
  if (a.collective == Collective::send_recv) {
    STRAIT_TRY(send(0, a.count, a.next()));
    return receive(0, a.count, a.previous());
  }
  const bool to_one = a.collective == Collective::gather, from_one = a.collective == Collective::scatter;
  const bool varies = a.collective == Collective::all_to_all_v;
  if (to_one) STRAIT_TRY(send(0, a.count, a.root));
  if (from_one) STRAIT_TRY(receive(0, a.count, a.root));
  for (int peer = 0; peer < a.ranks; ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    if (!to_one && (!from_one || a.rank == a.root))
      STRAIT_TRY(varies ? send(a.blocks.send_offsets[i], a.blocks.send_counts[i], peer)
                        : send(i * a.count, a.count, peer));
    if (!from_one && (!to_one || a.rank == a.root))
      STRAIT_TRY(varies ? receive(a.blocks.receive_offsets[i], a.blocks.receive_counts[i], peer)
                        : receive(i * a.count, a.count, peer));
  }
  return {};
}

}  // namespace strait::perf
