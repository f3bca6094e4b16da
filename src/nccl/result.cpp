#include "nccl/result.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "nccl/settings.hpp"

namespace strait::nccl {
namespace {

constexpr int first_version_with_timeout = 23000;

struct Texts {
  std::string error;
  std::string returned;
};

/// Returns this thread's texts. They are usable until the process ends, in memory that is never released: destructors
/// of a program's static objects also call the library, after those of thread_local objects have run.
Texts& thread_texts() {
  alignas(Texts) thread_local std::byte place[sizeof(Texts)];
  struct Owner {
    Texts* const texts = new (place) Texts;
    /// Leaves empty strings, which own no memory on the heap.
    ~Owner() {
      Texts taken;
      std::swap(*texts, taken);
    }
  };
  thread_local const Owner owner;
  return *std::launder(reinterpret_cast<Texts*>(place));
}

/// What error texts of Strait's name, and NCCL has by the same name but for the prefix. A name may begin another one,
/// such as straitCommInitRank and straitCommInitRankConfig: both have the same in NCCL.
constexpr std::string_view names_in_both[] = {
    "CommAbort",    "CommCount",    "CommGetAsyncError",    "CommUserRank", "CommDeregister", "CommDestroy",
    "CommInitRank", "CommRegister", "CommShrink",           "CommSplit",    "DataType_t",     "GetUniqueId",
    "GroupEnd",     "GroupStart",   "RedOpCreatePreMulSum", "RedOpDestroy", "RedOp_t",        "ScalarResidence_t",
};

/// Replaces the names of Strait's functions and types by NCCL's, those of the program that reads the text. It gets
/// shorter, and so no memory is allocated.
void use_nccl_names(std::string& text) {
  constexpr std::string_view prefix = "strait";
  for (std::size_t at = text.find(prefix); at != text.npos; at = text.find(prefix, at + 1)) {
    const auto begins_here = [&](std::string_view name) {
      return text.compare(at + prefix.size(), name.size(), name) == 0;
    };
    if (std::any_of(std::begin(names_in_both), std::end(names_in_both), begins_here))
      text.replace(at, prefix.size(), "nccl");
  }
}

/// The last error of the process, usable until the process ends.
struct ProcessError {
  std::mutex mutex;
  std::string text;
};
ProcessError& process_error() {
  // Static storage: this must work when no memory is left.
  alignas(ProcessError) static std::byte place[sizeof(ProcessError)];
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
  use_nccl_names(text);
  thread_texts().returned = std::move(text);
  return thread_texts().returned.c_str();
}

}  // namespace strait::nccl
