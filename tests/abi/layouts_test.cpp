// Strait's header against NVIDIA's, where there is one. The compiler compares them, so this test passes by building.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <limits.h>
#include <stdint.h>

#include <cstddef>

namespace ours {
#include "nccl/nccl_types.h"
}
#undef NCCL_CONFIG_UNDEF_INT
#undef NCCL_CONFIG_UNDEF_PTR
#undef NCCL_SPLIT_NOCOLOR
#undef NCCL_API_MAGIC
#undef NCCL_WIN_COLL_SYMMETRIC
#undef NCCL_SHRINK_DEFAULT
#undef NCCL_SHRINK_ABORT
#undef NCCL_CONFIG_INITIALIZER
#undef NCCL_UNIQUE_ID_BYTES

#include <nccl.h>

#if NCCL_VERSION_CODE < 22900  // types of functions that later versions added
using ours::ncclCommMemStat_t;
using ours::ncclWaitSignalDesc_t;
#endif
#if NCCL_VERSION_CODE < 23000
using ours::ncclParamHandle_t;
#endif
// If both headers declare a function with different parameters or another result, this does not compile.
#include "nccl/nccl_functions.h"

#define SAME_FIELD(type, field)                                           \
  static_assert(offsetof(::type, field) == offsetof(ours::type, field) && \
                sizeof(::type::field) == sizeof(ours::type::field))
#define SAME_VALUE(name) static_assert(int(::name) == int(ours::name))

static_assert(sizeof(::ncclUniqueId) == sizeof(ours::ncclUniqueId) && alignof(::ncclUniqueId) == 1 &&
              alignof(ours::ncclUniqueId) == 1);

SAME_FIELD(ncclConfig_t, size);
SAME_FIELD(ncclConfig_t, magic);
SAME_FIELD(ncclConfig_t, version);
SAME_FIELD(ncclConfig_t, blocking);
SAME_FIELD(ncclConfig_t, cgaClusterSize);
SAME_FIELD(ncclConfig_t, minCTAs);
SAME_FIELD(ncclConfig_t, maxCTAs);
SAME_FIELD(ncclConfig_t, netName);
SAME_FIELD(ncclConfig_t, splitShare);
SAME_FIELD(ncclConfig_t, trafficClass);
SAME_FIELD(ncclConfig_t, commName);
SAME_FIELD(ncclConfig_t, collnetEnable);
SAME_FIELD(ncclConfig_t, CTAPolicy);
SAME_FIELD(ncclConfig_t, shrinkShare);
SAME_FIELD(ncclConfig_t, nvlsCTAs);
SAME_FIELD(ncclConfig_t, nChannelsPerNetPeer);
SAME_FIELD(ncclConfig_t, nvlinkCentricSched);
#if NCCL_VERSION_CODE >= 22900
SAME_FIELD(ncclConfig_t, graphUsageMode);
SAME_FIELD(ncclConfig_t, numRmaCtx);
#endif
#if NCCL_VERSION_CODE >= 23005
SAME_FIELD(ncclConfig_t, maxP2pPeers);
SAME_FIELD(ncclConfig_t, graphStreamOrdering);
static_assert(sizeof(::ncclConfig_t) == sizeof(ours::ncclConfig_t));
#endif
constexpr ::ncclConfig_t their_config = NCCL_CONFIG_INITIALIZER;
static_assert(their_config.magic == 0xcafebeefu && their_config.blocking == INT_MIN &&
              their_config.version == NCCL_VERSION_CODE);

SAME_FIELD(ncclSimInfo_t, size);
SAME_FIELD(ncclSimInfo_t, magic);
SAME_FIELD(ncclSimInfo_t, version);
SAME_FIELD(ncclSimInfo_t, estimatedTime);
static_assert(sizeof(::ncclSimInfo_t) == sizeof(ours::ncclSimInfo_t));
constexpr ::ncclSimInfo_t their_info = NCCL_SIM_INFO_INITIALIZER;
static_assert(their_info.magic == NCCL_SIM_INFO_MAGIC);

SAME_VALUE(ncclSuccess);
SAME_VALUE(ncclUnhandledCudaError);
SAME_VALUE(ncclSystemError);
SAME_VALUE(ncclInternalError);
SAME_VALUE(ncclInvalidArgument);
SAME_VALUE(ncclInvalidUsage);
SAME_VALUE(ncclRemoteError);
SAME_VALUE(ncclInProgress);
#if NCCL_VERSION_CODE >= 23000
SAME_VALUE(ncclTimeout);
#endif
static_assert(sizeof(::ncclResult_t) == sizeof(ours::ncclResult_t));

SAME_VALUE(ncclInt8);
SAME_VALUE(ncclUint8);
SAME_VALUE(ncclInt32);
SAME_VALUE(ncclUint32);
SAME_VALUE(ncclInt64);
SAME_VALUE(ncclUint64);
SAME_VALUE(ncclFloat16);
SAME_VALUE(ncclFloat32);
SAME_VALUE(ncclFloat64);
SAME_VALUE(ncclBfloat16);
SAME_VALUE(ncclFloat8e4m3);
SAME_VALUE(ncclFloat8e5m2);
SAME_VALUE(ncclNumTypes);
SAME_VALUE(ncclSum);
SAME_VALUE(ncclProd);
SAME_VALUE(ncclMax);
SAME_VALUE(ncclMin);
SAME_VALUE(ncclAvg);
SAME_VALUE(ncclNumOps);
SAME_VALUE(ncclMaxRedOp);
SAME_VALUE(ncclScalarDevice);
SAME_VALUE(ncclScalarHostImmediate);

static_assert(NCCL_SPLIT_NOCOLOR == -1 && NCCL_WIN_COLL_SYMMETRIC == 1 && NCCL_SHRINK_ABORT == 1);

int main() { return 0; }
