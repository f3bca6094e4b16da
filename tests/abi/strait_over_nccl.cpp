// Strait's interface implemented by the drop-in's, so that tests written for the former run through the latter.
#include <array>
#include <cstring>
#include <vector>

#include "nccl/nccl_abi.h"
#include "strait/strait.h"

namespace {

straitResult_t from_nccl(ncclResult_t result) {
  constexpr std::array<straitResult_t, 9> results = {straitSuccess,       straitCudaError,       straitSystemError,
                                                     straitInternalError, straitInvalidArgument, straitInvalidUsage,
                                                     straitRemoteError,   straitInProgress,      straitTimeout};
  return results[static_cast<std::size_t>(result)];
}

ncclComm_t comm_of(straitComm_t comm) { return reinterpret_cast<ncclComm_t>(comm); }
ncclDataType_t type_of(straitDataType_t type) { return static_cast<ncclDataType_t>(type); }
ncclRedOp_t op_of(straitRedOp_t op) { return static_cast<ncclRedOp_t>(op); }
cudaStream_t stream_of(straitStream_t stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

straitResult_t straitGetUniqueId(straitUniqueId* id) {
  ncclUniqueId made;
  const ncclResult_t result = ncclGetUniqueId(&made);
  std::memcpy(id, &made, sizeof made);
  return from_nccl(result);
}

straitResult_t straitCommInitRank(straitComm_t* comm, int ranks, const straitUniqueId* id, int rank,
                                  const straitConfig_t*) {
  ncclUniqueId given;
  std::memcpy(&given, id, sizeof given);
  return from_nccl(ncclCommInitRank(reinterpret_cast<ncclComm_t*>(comm), ranks, given, rank));
}

straitResult_t straitCommSplit(straitComm_t comm, int color, int key, straitComm_t* split, const straitConfig_t*) {
  return from_nccl(ncclCommSplit(comm_of(comm), color, key, reinterpret_cast<ncclComm_t*>(split), nullptr));
}

straitResult_t straitCommDestroy(straitComm_t comm) { return from_nccl(ncclCommDestroy(comm_of(comm))); }
straitResult_t straitCommAbort(straitComm_t comm) { return from_nccl(ncclCommRevoke(comm_of(comm), 0)); }

straitResult_t straitCommGetAsyncError(straitComm_t comm, straitResult_t* error) {
  ncclResult_t seen = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm_of(comm), &seen);
  *error = from_nccl(seen);
  return from_nccl(result);
}

straitResult_t straitCommCount(straitComm_t comm, int* ranks) { return from_nccl(ncclCommCount(comm_of(comm), ranks)); }
straitResult_t straitCommUserRank(straitComm_t comm, int* rank) {
  return from_nccl(ncclCommUserRank(comm_of(comm), rank));
}
straitResult_t straitCommDevice(straitComm_t comm, int* device) {
  return from_nccl(ncclCommCuDevice(comm_of(comm), device));
}
const char* straitGetLastError(straitComm_t comm) { return ncclGetLastError(comm_of(comm)); }
const char* straitGetErrorString(straitResult_t) { return "of NCCL"; }
straitResult_t straitMemAlloc(void** pointer, size_t size) { return from_nccl(ncclMemAlloc(pointer, size)); }
straitResult_t straitMemFree(void* pointer) { return from_nccl(ncclMemFree(pointer)); }

straitResult_t straitCommRegister(straitComm_t comm, void* pointer, size_t size, void** handle) {
  return from_nccl(ncclCommWindowRegister(comm_of(comm), pointer, size, reinterpret_cast<ncclWindow_t*>(handle),
                                          NCCL_WIN_COLL_SYMMETRIC));
}
straitResult_t straitCommDeregister(straitComm_t comm, void* handle) {
  return from_nccl(ncclCommWindowDeregister(comm_of(comm), static_cast<ncclWindow_t>(handle)));
}

straitResult_t straitRedOpCreatePreMulSum(straitRedOp_t* op, const void* scalar, straitDataType_t type,
                                          straitScalarResidence_t residence, straitComm_t comm) {
  ncclRedOp_t made = ncclSum;
  const ncclResult_t result = ncclRedOpCreatePreMulSum(&made, const_cast<void*>(scalar), type_of(type),
                                                       static_cast<ncclScalarResidence_t>(residence), comm_of(comm));
  *op = static_cast<straitRedOp_t>(made);
  return from_nccl(result);
}
straitResult_t straitRedOpDestroy(straitRedOp_t op, straitComm_t comm) {
  return from_nccl(ncclRedOpDestroy(op_of(op), comm_of(comm)));
}

straitResult_t straitAllReduce(const void* send, void* receive, size_t count, straitDataType_t type, straitRedOp_t op,
                               straitComm_t comm, straitStream_t stream) {
  return from_nccl(ncclAllReduce(send, receive, count, type_of(type), op_of(op), comm_of(comm), stream_of(stream)));
}
straitResult_t straitReduce(const void* send, void* receive, size_t count, straitDataType_t type, straitRedOp_t op,
                            int root, straitComm_t comm, straitStream_t stream) {
  return from_nccl(ncclReduce(send, receive, count, type_of(type), op_of(op), root, comm_of(comm), stream_of(stream)));
}
straitResult_t straitReduceScatter(const void* send, void* receive, size_t count, straitDataType_t type,
                                   straitRedOp_t op, straitComm_t comm, straitStream_t stream) {
  return from_nccl(ncclReduceScatter(send, receive, count, type_of(type), op_of(op), comm_of(comm), stream_of(stream)));
}
straitResult_t straitAllGather(const void* send, void* receive, size_t count, straitDataType_t type, straitComm_t comm,
                               straitStream_t stream) {
  return from_nccl(ncclAllGather(send, receive, count, type_of(type), comm_of(comm), stream_of(stream)));
}
straitResult_t straitAllToAll(const void* send, void* receive, size_t count, straitDataType_t type, straitComm_t comm,
                              straitStream_t stream) {
  return from_nccl(ncclAlltoAll(send, receive, count, type_of(type), comm_of(comm), stream_of(stream)));
}
/* NCCL's interface has no options for calls. */
straitResult_t straitAllReduceWithOptions(const void*, void*, size_t, straitDataType_t, straitRedOp_t, straitComm_t,
                                          straitStream_t, const straitCallOptions_t*) {
  return straitUnsupported;
}
straitResult_t straitAllGatherWithOptions(const void*, void*, size_t, straitDataType_t, straitComm_t, straitStream_t,
                                          const straitCallOptions_t*) {
  return straitUnsupported;
}
straitResult_t straitReduceScatterWithOptions(const void*, void*, size_t, straitDataType_t, straitRedOp_t, straitComm_t,
                                              straitStream_t, const straitCallOptions_t*) {
  return straitUnsupported;
}
straitResult_t straitAllToAllWithOptions(const void*, void*, size_t, straitDataType_t, straitComm_t, straitStream_t,
                                         const straitCallOptions_t*) {
  return straitUnsupported;
}
straitResult_t straitBroadcastWithOptions(const void*, void*, size_t, straitDataType_t, int, straitComm_t,
                                          straitStream_t, const straitCallOptions_t*) {
  return straitUnsupported;
}
straitResult_t straitReduceWithOptions(const void*, void*, size_t, straitDataType_t, straitRedOp_t, int, straitComm_t,
                                       straitStream_t, const straitCallOptions_t*) {
  return straitUnsupported;
}
straitResult_t straitGatherWithOptions(const void*, void*, size_t, straitDataType_t, int, straitComm_t, straitStream_t,
                                       const straitCallOptions_t*) {
  return straitUnsupported;
}
straitResult_t straitScatterWithOptions(const void*, void*, size_t, straitDataType_t, int, straitComm_t, straitStream_t,
                                        const straitCallOptions_t*) {
  return straitUnsupported;
}
straitResult_t straitBroadcast(const void* send, void* receive, size_t count, straitDataType_t type, int root,
                               straitComm_t comm, straitStream_t stream) {
  if (send == receive)
    return from_nccl(ncclBcast(receive, count, type_of(type), root, comm_of(comm), stream_of(stream)));
  return from_nccl(ncclBroadcast(send, receive, count, type_of(type), root, comm_of(comm), stream_of(stream)));
}
straitResult_t straitGather(const void* send, void* receive, size_t count, straitDataType_t type, int root,
                            straitComm_t comm, straitStream_t stream) {
  return from_nccl(ncclGather(send, receive, count, type_of(type), root, comm_of(comm), stream_of(stream)));
}
straitResult_t straitScatter(const void* send, void* receive, size_t count, straitDataType_t type, int root,
                             straitComm_t comm, straitStream_t stream) {
  return from_nccl(ncclScatter(send, receive, count, type_of(type), root, comm_of(comm), stream_of(stream)));
}
straitResult_t straitSend(const void* send, size_t count, straitDataType_t type, int peer, straitComm_t comm,
                          straitStream_t stream) {
  return from_nccl(ncclSend(send, count, type_of(type), peer, comm_of(comm), stream_of(stream)));
}
straitResult_t straitRecv(void* receive, size_t count, straitDataType_t type, int peer, straitComm_t comm,
                          straitStream_t stream) {
  return from_nccl(ncclRecv(receive, count, type_of(type), peer, comm_of(comm), stream_of(stream)));
}

/// NCCL has no barrier: this is an all-reduce of one element, which NCCL programs use instead.
straitResult_t straitBarrier(straitComm_t comm, straitStream_t stream) {
  static thread_local float one = 1;
  return from_nccl(ncclAllReduce(&one, &one, 1, ncclFloat32, ncclMax, comm_of(comm), stream_of(stream)));
}

/// NCCL has no all-to-all with counts either: this is a group of sends and receives.
straitResult_t straitAllToAllv(const void* send, const size_t send_counts[], const size_t send_offsets[], void* receive,
                               const size_t receive_counts[], const size_t receive_offsets[], straitDataType_t type,
                               straitComm_t comm, straitStream_t stream) {
  if (send_counts == nullptr || send_offsets == nullptr || receive_counts == nullptr || receive_offsets == nullptr)
    return straitBarrier(nullptr, stream);  // returns an invalid-argument error from NCCL
  constexpr std::array<std::size_t, 12> sizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  const std::size_t size_bytes = sizes[type];
  int ranks = 0;
  ncclCommCount(comm_of(comm), &ranks);
  ncclGroupStart();
  for (int peer = 0; peer < ranks; ++peer) {
    ncclSend(static_cast<const char*>(send) + send_offsets[peer] * size_bytes, send_counts[peer], type_of(type), peer,
             comm_of(comm), stream_of(stream));
    ncclRecv(static_cast<char*>(receive) + receive_offsets[peer] * size_bytes, receive_counts[peer], type_of(type),
             peer, comm_of(comm), stream_of(stream));
  }
  return from_nccl(ncclGroupEnd());
}

straitResult_t straitGroupStart(void) { return from_nccl(ncclGroupStart()); }
straitResult_t straitGroupEnd(void) { return from_nccl(ncclGroupEnd()); }
