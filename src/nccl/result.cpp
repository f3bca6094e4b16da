#include "nccl/result.hpp"

#include <mutex>

#include "nccl/settings.hpp"

namespace strait::nccl {
namespace {

constexpr int first_version_with_timeout = 23000;

thread_local std::string thread_error;
thread_local std::string returned_text;
std::mutex process_mutex;
std::string process_error;

}  // namespace

ncclResult_t to_nccl(straitResult_t result) {
  switch (result) {
    case straitSuccess:
      return ncclSuccess;
    case straitInvalidArgument:
      return ncclInvalidArgument;
    case straitInvalidUsage:
    case straitMismatch:
    case straitUnsupported:
      return ncclInvalidUsage;
    case straitSystemError:
    case straitOutOfMemory:
      return ncclSystemError;
    case straitCudaError:
      return ncclUnhandledCudaError;
    case straitRemoteError:
    case straitAborted:
      return ncclRemoteError;
    case straitTimeout:  // programs built for earlier versions do not know ncclTimeout
      return served_version() >= first_version_with_timeout ? ncclTimeout : ncclRemoteError;
    case straitInProgress:
      return ncclInProgress;
    case straitInternalError:
      break;
  }
  return ncclInternalError;
}

ncclResult_t failed(ncclResult_t result, const std::string& text) {
  thread_error = text;
  const std::scoped_lock lock(process_mutex);
  process_error = text;
  return result;
}

ncclResult_t checked(straitResult_t result) {
  if (result == straitSuccess || result == straitInProgress) return to_nccl(result);
  return failed(to_nccl(result), straitGetLastError(nullptr));
}

const char* last_error() {
  if (!thread_error.empty()) return kept_text(thread_error);
  const std::scoped_lock lock(process_mutex);
  return kept_text(process_error);
}

const char* kept_text(std::string text) {
  returned_text = std::move(text);
  return returned_text.c_str();
}

}  // namespace strait::nccl
