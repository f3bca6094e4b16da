/* Stands for another libnccl.so.2, such as NVIDIA's, in the test of `strait run`: every call fails. */
#include "nccl/nccl_abi.h"

ncclResult_t ncclGetVersion(int* version) {
  *version = 1;
  return ncclSystemError;
}
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  (void)comm, (void)ndev, (void)devlist;
  return ncclSystemError;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  (void)id;
  return ncclSystemError;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  (void)comm, (void)nranks, (void)id, (void)rank, (void)config;
  return ncclSystemError;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  (void)comm;
  return ncclSystemError;
}
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  (void)sendbuff, (void)recvbuff, (void)count, (void)datatype, (void)op, (void)comm, (void)stream;
  return ncclSystemError;
}
ncclResult_t ncclGroupStart(void) { return ncclSystemError; }
ncclResult_t ncclGroupEnd(void) { return ncclSystemError; }
const char* ncclGetErrorString(ncclResult_t result) {
  (void)result;
  return "another library serves";
}
const char* ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "another library serves";
}
