// Functions of the ABI that Strait does not support: each returns ncclInvalidUsage, with an error text. All names must
// exist, because a program that refers to a missing one cannot be loaded. Functions of NCCL's device interface
// (nccl_device.h) are declared only here and in device_interface.cpp: Strait does not define that interface.
#include "nccl/entry.hpp"
#include "nccl/group.hpp"

namespace {

ncclResult_t unsupported(const char* function) {
  using namespace strait::nccl;
  return guarded([&] {
    return Group::of_this_thread().note(
        failed(ncclInvalidUsage, std::string(function) + " is not supported by Strait (docs/nccl.md)"));
  });
}

}  // namespace

#define STRAIT_NCCL_UNSUPPORTED(name, ...) \
  STRAIT_NCCL_ENTRY(ncclResult_t, name, __VA_ARGS__) { return unsupported(#name); }

STRAIT_NCCL_UNSUPPORTED(ncclCommGetUniqueId, ncclComm_t, ncclUniqueId*)
STRAIT_NCCL_UNSUPPORTED(ncclCommGrow, ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*)
STRAIT_NCCL_UNSUPPORTED(ncclCommSuspend, ncclComm_t, int)
STRAIT_NCCL_UNSUPPORTED(ncclCommResume, ncclComm_t)
STRAIT_NCCL_UNSUPPORTED(ncclCommMemStats, ncclComm_t, ncclCommMemStat_t, uint64_t*)

STRAIT_NCCL_UNSUPPORTED(ncclPutSignal, const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
                        unsigned int, ncclComm_t, cudaStream_t)
STRAIT_NCCL_UNSUPPORTED(ncclSignal, int, int, int, unsigned int, ncclComm_t, cudaStream_t)
STRAIT_NCCL_UNSUPPORTED(ncclWaitSignal, int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t)

STRAIT_NCCL_UNSUPPORTED(ncclParamBind, ncclParamHandle_t*, const char*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetI8, ncclParamHandle_t, int8_t*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetI16, ncclParamHandle_t, int16_t*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetI32, ncclParamHandle_t, int32_t*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetI64, ncclParamHandle_t, int64_t*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetU8, ncclParamHandle_t, uint8_t*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetU16, ncclParamHandle_t, uint16_t*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetU32, ncclParamHandle_t, uint32_t*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetU64, ncclParamHandle_t, uint64_t*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetStr, ncclParamHandle_t, const char**)
STRAIT_NCCL_UNSUPPORTED(ncclParamGet, ncclParamHandle_t, void*, int, int*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetParameter, const char*, const char**, int*)
STRAIT_NCCL_UNSUPPORTED(ncclParamGetAllParameterKeys, const char***, int*)
STRAIT_NCCL_ENTRY(void, ncclParamDumpAll, void) {}

// Newer than the newest header that was available; their arguments are not read.
STRAIT_NCCL_UNSUPPORTED(ncclAllReduceConfig, void)
STRAIT_NCCL_UNSUPPORTED(ncclAllGatherConfig, void)
STRAIT_NCCL_UNSUPPORTED(ncclReduceScatterConfig, void)
STRAIT_NCCL_UNSUPPORTED(ncclBroadcastConfig, void)
STRAIT_NCCL_UNSUPPORTED(ncclAlltoAllConfig, void)

// nccl_device.h
STRAIT_NCCL_UNSUPPORTED(ncclDevCommCreate, ncclComm_t, const void*, void*)
STRAIT_NCCL_UNSUPPORTED(ncclDevCommDestroy, ncclComm_t, const void*)
STRAIT_NCCL_UNSUPPORTED(ncclGetMultimemDevicePointer, void)
STRAIT_NCCL_UNSUPPORTED(ncclGinBarrierCreateRequirement, void)
STRAIT_NCCL_UNSUPPORTED(ncclGinInboxA2ACreateRequirement, void)
STRAIT_NCCL_UNSUPPORTED(ncclGinOutboxCreateRequirement, void)
STRAIT_NCCL_UNSUPPORTED(ncclLsaBarrierCreateRequirement, void)
STRAIT_NCCL_UNSUPPORTED(ncclLLA2ACreateRequirement, void)
STRAIT_NCCL_ENTRY(int, ncclLLA2ACalcSlots, int, int) { return 0; }
