// Collectives, sends and receives, reductions. NCCL's types, values and argument orders are the same as Strait's.
#include <cstddef>
#include <mutex>
#include <optional>

#include "nccl/entry.hpp"
#include "nccl/group.hpp"
#include "nccl/settings.hpp"

namespace strait::nccl {
namespace {

static_assert(int(ncclFloat8e5m2) == straitFloat8e5m2 && int(ncclBfloat16) == straitBfloat16 &&
              int(ncclScalarDevice) == straitScalarDevice && int(ncclInt8) == straitInt8 && int(ncclAvg) == straitAvg &&
              int(ncclMaxRedOp) == straitMaxRedOp);

straitDataType_t type_of(ncclDataType_t type) { return static_cast<straitDataType_t>(type); }
straitRedOp_t op_of(ncclRedOp_t op) { return static_cast<straitRedOp_t>(op); }

/// Returns why an existing communicator accepts no operations; null if it accepts them.
const char* why_no_operations(const ncclComm& comm) {
  if (comm.is_finalized.load(std::memory_order_relaxed)) return "the communicator is finalized";
  if (comm.has_ended_itself.load(std::memory_order_relaxed))
    return "the communicator was revoked (ncclCommRevoke), or aborted for a shrink (NCCL_SHRINK_ABORT). It can be "
           "shrunk and destroyed";
  return nullptr;
}

/// What decides whether a collective has anything to do, and whether its arguments are valid.
struct Collective {
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int root = 0;
};

/// Whether the call is valid but empty. NCCL discards such collectives, so that other ranks need not make them. Strait
/// would number them, as it does all calls. Invalid ones, and those on a communicator that has failed, are left to
/// Strait, which returns the error.
bool is_discarded(const Collective& call, ncclComm& comm) {
  if (call.count != 0 || call.type < 0 || call.type >= ncclNumTypes) return false;
  int ranks = 0;
  if (straitCommCount(comm.strait, &ranks) != straitSuccess || call.root < 0 || call.root >= ranks) return false;
  straitResult_t error = straitSuccess;
  if (straitCommGetAsyncError(comm.strait, &error) != straitSuccess || error != straitSuccess) return false;
  if (call.op >= ncclSum && call.op < ncclNumOps) return true;
  const std::scoped_lock lock(comm.mutex);
  return comm.reductions.contains(call.op);
}

/// Runs an operation, or records it in the open group. `body` issues it on Strait's communicator and a stream: the
/// program's, or null for host ranks. `collective`: nullopt for a send or a receive.
template <class F>
ncclResult_t operation(const char* name, ncclComm_t handle, cudaStream_t stream,
                       const std::optional<Collective>& collective, F&& body) noexcept {
  return guarded([&] {
    Group& group = Group::of_this_thread();
    std::string problem;
    ncclResult_t result = usable(handle, problem);
    if (result == ncclSuccess)
      if (const char* why = why_no_operations(*handle)) {
        result = ncclInvalidUsage;
        problem = why;
      }
    if (result != ncclSuccess) return group.note(failed(result, std::string(name) + ": " + problem));
    const Running running(handle);
    if (collective && is_discarded(*collective, *handle)) return ncclSuccess;
    result = checked(body(handle->strait, handle->is_on_host ? nullptr : stream));
    if (group.is_open()) group.keep(handle);
    return group.note(result);
  });
}

ncclResult_t create_premul(ncclRedOp_t* op, const void* scalar, ncclDataType_t datatype,
                           ncclScalarResidence_t residence, ncclComm& comm) {
  if (op == nullptr) return failed(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: op is NULL");
  straitRedOp_t made = straitSum;
  const ncclResult_t result = checked(straitRedOpCreatePreMulSum(
      &made, scalar, type_of(datatype), static_cast<straitScalarResidence_t>(residence), comm.strait));
  if (result != ncclSuccess) return result;
  *op = static_cast<ncclRedOp_t>(made);
  const std::scoped_lock lock(comm.mutex);
  comm.reductions.insert(*op);
  return ncclSuccess;
}

ncclResult_t destroy_premul(ncclRedOp_t op, ncclComm& comm) {
  const ncclResult_t result = checked(straitRedOpDestroy(op_of(op), comm.strait));
  if (result != ncclSuccess) return result;
  const std::scoped_lock lock(comm.mutex);
  comm.reductions.erase(op);
  return ncclSuccess;
}

}  // namespace
}  // namespace strait::nccl

using namespace strait::nccl;

STRAIT_NCCL_ENTRY(ncclResult_t, ncclAllReduce, const void* sendbuff, void* recvbuff, size_t count,
                  ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return operation("ncclAllReduce", comm, stream, Collective{count, datatype, op},
                   [&](straitComm_t to, straitStream_t on) {
                     return straitAllReduce(sendbuff, recvbuff, count, type_of(datatype), op_of(op), to, on);
                   });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclReduce, const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                  ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return operation("ncclReduce", comm, stream, Collective{count, datatype, op, root},
                   [&](straitComm_t to, straitStream_t on) {
                     return straitReduce(sendbuff, recvbuff, count, type_of(datatype), op_of(op), root, to, on);
                   });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclReduceScatter, const void* sendbuff, void* recvbuff, size_t recvcount,
                  ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return operation("ncclReduceScatter", comm, stream, Collective{recvcount, datatype, op},
                   [&](straitComm_t to, straitStream_t on) {
                     return straitReduceScatter(sendbuff, recvbuff, recvcount, type_of(datatype), op_of(op), to, on);
                   });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclAllGather, const void* sendbuff, void* recvbuff, size_t sendcount,
                  ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return operation("ncclAllGather", comm, stream, Collective{sendcount, datatype},
                   [&](straitComm_t to, straitStream_t on) {
                     return straitAllGather(sendbuff, recvbuff, sendcount, type_of(datatype), to, on);
                   });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclAlltoAll, const void* sendbuff, void* recvbuff, size_t count,
                  ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return operation("ncclAlltoAll", comm, stream, Collective{count, datatype}, [&](straitComm_t to, straitStream_t on) {
    return straitAllToAll(sendbuff, recvbuff, count, type_of(datatype), to, on);
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclBroadcast, const void* sendbuff, void* recvbuff, size_t count,
                  ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return operation("ncclBroadcast", comm, stream, Collective{count, datatype, ncclSum, root},
                   [&](straitComm_t to, straitStream_t on) {
                     return straitBroadcast(sendbuff, recvbuff, count, type_of(datatype), root, to, on);
                   });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclBcast, void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                  cudaStream_t stream) {
  return operation("ncclBcast", comm, stream, Collective{count, datatype, ncclSum, root},
                   [&](straitComm_t to, straitStream_t on) {
                     return straitBroadcast(buff, buff, count, type_of(datatype), root, to, on);
                   });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclGather, const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                  int root, ncclComm_t comm, cudaStream_t stream) {
  return operation("ncclGather", comm, stream, Collective{count, datatype, ncclSum, root},
                   [&](straitComm_t to, straitStream_t on) {
                     return straitGather(sendbuff, recvbuff, count, type_of(datatype), root, to, on);
                   });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclScatter, const void* sendbuff, void* recvbuff, size_t count,
                  ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return operation("ncclScatter", comm, stream, Collective{count, datatype, ncclSum, root},
                   [&](straitComm_t to, straitStream_t on) {
                     return straitScatter(sendbuff, recvbuff, count, type_of(datatype), root, to, on);
                   });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclSend, const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                  ncclComm_t comm, cudaStream_t stream) {
  return operation("ncclSend", comm, stream, std::nullopt, [&](straitComm_t to, straitStream_t on) {
    return straitSend(sendbuff, count, type_of(datatype), peer, to, on);
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclRecv, void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                  ncclComm_t comm, cudaStream_t stream) {
  return operation("ncclRecv", comm, stream, std::nullopt, [&](straitComm_t to, straitStream_t on) {
    return straitRecv(recvbuff, count, type_of(datatype), peer, to, on);
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                  ncclScalarResidence_t residence, ncclComm_t comm) {
  return with_comm(comm, "ncclRedOpCreatePreMulSum",
                   [&](ncclComm& live) { return create_premul(op, scalar, datatype, residence, live); });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
  return with_comm(comm, "ncclRedOpDestroy", [&](ncclComm& live) { return destroy_premul(op, live); });
}
