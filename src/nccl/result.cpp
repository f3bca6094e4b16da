#include "nccl/result.hpp"

#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

#include "nccl/settings.hpp"

namespace strait::nccl {
namespace {

constexpr int first_version_with_timeout = 23000;

struct Texts {
  std::string error;
  std::string returned;
};

/// Of this thread. They may be used as long as the process: destructors of a program's static objects call the library,
/// too, and come after those of all that is thread_local.
Texts& thread_texts() {
  alignas(Texts) thread_local std::byte place[sizeof(Texts)];
  struct Owner {
    Texts* const texts = new (place) Texts;
    /// Leaves empty ones, which need no memory but their place.
    ~Owner() {
      Texts taken;
      std::swap(*texts, taken);
    }
  };
  thread_local const Owner owner;
  return *std::launder(reinterpret_cast<Texts*>(place));
}

/// Of the whole process, to the very end of it.
struct ProcessError {
  std::mutex mutex;
  std::string text;
};
ProcessError& process_error() {
  alignas(ProcessError) static std::byte place[sizeof(ProcessError)];  // there is none to be had where memory is short
  static auto* const error = new (place) ProcessError;
  return *error;
}

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
  thread_texts().error = text;
  const std::scoped_lock lock(process_error().mutex);
  process_error().text = text;
  return result;
}

ncclResult_t checked(straitResult_t result) {
  if (result == straitSuccess || result == straitInProgress) return to_nccl(result);
  return failed(to_nccl(result), straitGetLastError(nullptr));
}

const char* last_error() {
  if (!thread_texts().error.empty()) return kept_text(thread_texts().error);
  const std::scoped_lock lock(process_error().mutex);
  return kept_text(process_error().text);
}

const char* kept_text(std::string text) {
  thread_texts().returned = std::move(text);
  return thread_texts().returned.c_str();
}

}  // namespace strait::nccl
