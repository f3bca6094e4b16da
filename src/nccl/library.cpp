// The library itself: version, errors, groups.
#include <array>
#include <cstddef>

#include "nccl/entry.hpp"
#include "nccl/group.hpp"
#include "nccl/settings.hpp"

using namespace strait::nccl;

STRAIT_NCCL_ENTRY(ncclResult_t, ncclGetVersion, int* version) {
  return guarded([&] {
    if (version == nullptr) return failed(ncclInvalidArgument, "ncclGetVersion: the pointer is NULL");
    const char* setting = nullptr;
    if (const ncclResult_t result = checked(straitGetSetting("STRAIT_NCCL_VERSION", &setting)); result != ncclSuccess)
      return result;
    *version = served_version();
    return ncclSuccess;
  });
}

STRAIT_NCCL_ENTRY(const char*, ncclGetErrorString, ncclResult_t result) {
  static constexpr std::array<const char*, 9> texts = {
      "no error",
      "CUDA error (ncclGetLastError says which)",
      "system error (ncclGetLastError says which)",
      "internal error: please report it to the authors of Strait",
      "invalid argument (ncclGetLastError says which)",
      "invalid usage (ncclGetLastError says what)",
      "a remote process ended, aborted or could not be reached (ncclGetLastError says which)",
      "operation in progress",
      "a deadline passed (ncclGetLastError says which)"};
  const auto index = static_cast<unsigned>(result);
  return index < texts.size() ? texts[index] : "unknown result";
}

STRAIT_NCCL_ENTRY(const char*, ncclGetLastError, ncclComm_t comm) {
  const char* text = "";
  (void)guarded([&] {
    text = last_error();
    ncclComm* live = live_comm(comm);
    if (live == nullptr || live->progress.load(std::memory_order_acquire) == ncclInProgress) return ncclSuccess;
    straitResult_t error = straitSuccess;
    if (live->strait != nullptr && !live->has_ended_itself &&
        straitCommGetAsyncError(live->strait, &error) == straitSuccess && error != straitSuccess) {
      text = kept_text(straitGetLastError(live->strait));
      return ncclSuccess;
    }
    const std::scoped_lock lock(live->mutex);
    if (!live->setup_error.empty()) text = kept_text(live->setup_error);
    return ncclSuccess;
  });
  return text;
}

/// Does nothing: the log level is read only once. Deprecated by NCCL.
STRAIT_NCCL_ENTRY(void, ncclResetDebugInit, void) {}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclGroupStart, void) {
  return guarded([&] {
    apply_settings();
    return Group::of_this_thread().start();
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclGroupEnd, void) {
  return guarded([&] { return Group::of_this_thread().end(); });
}

/// Predicts nothing: it sets an undefined time, for which programs use their own estimates (PyTorch does).
STRAIT_NCCL_ENTRY(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t* simInfo) {
  return guarded([&] {
    Group& group = Group::of_this_thread();
    if (simInfo == nullptr || simInfo->magic != NCCL_SIM_INFO_MAGIC)
      return group.cancel(
          ncclInvalidArgument,
          "ncclGroupSimulateEnd: the argument is NULL, or not initialized by NCCL_SIM_INFO_INITIALIZER. The group is "
          "ended, and nothing of it runs");
    const ncclResult_t result = group.simulate_end();
    const bool has_time = simInfo->size >= offsetof(ncclSimInfo_t, estimatedTime) + sizeof simInfo->estimatedTime;
    if (result == ncclSuccess && has_time) simInfo->estimatedTime = NCCL_UNDEF_FLOAT;
    return result;
  });
}
