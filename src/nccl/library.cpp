// The library itself: version, errors, groups.
#include <array>
#include <cstddef>
#include <string>
#include <utility>

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

namespace strait::nccl {
namespace {

/// Returns the text of the communicator's own error; "" if it has none, or is still being set up.
std::string error_of(ncclComm& comm) {
  if (comm.progress.load(std::memory_order_acquire) == ncclInProgress) return {};
  straitResult_t error = straitSuccess;
  if (comm.strait != nullptr && !comm.has_ended_itself &&
      straitCommGetAsyncError(comm.strait, &error) == straitSuccess && error != straitSuccess)
    return straitGetLastError(comm.strait);
  const std::scoped_lock lock(comm.mutex);
  return comm.setup_error;
}

}  // namespace
}  // namespace strait::nccl

/// NCCL ignores the handle, so that programs may pass any, also one that is destroyed.
STRAIT_NCCL_ENTRY(const char*, ncclGetLastError, ncclComm_t comm) {
  const char* text = "";
  (void)guarded([&] {
    text = last_error();
    if (comm == nullptr) return ncclSuccess;
    std::string own;
    use_if_handed_out(comm, [&](ncclComm& live) { own = error_of(live); });
    if (!own.empty()) text = kept_text(std::move(own));
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
