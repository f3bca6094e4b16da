#pragma once

#include <exception>
#include <new>
#include <string>

#include "nccl/nccl_abi.h"
#include "strait/strait.h"

/// Results and error texts, from Strait's to NCCL's.
namespace strait::nccl {

ncclResult_t to_nccl(straitResult_t result);

/// Keeps the text for ncclGetLastError, and returns `result`.
ncclResult_t failed(ncclResult_t result, const std::string& text);
/// The result of a Strait call of this thread; a failure's text is kept.
ncclResult_t checked(straitResult_t result);
/// The text of what failed last on this thread, else in the process; "" if nothing has. Valid until the thread's next
/// call.
const char* last_error();
/// `text` with the same lifetime.
const char* kept_text(std::string text);

/// Nothing thrown crosses the C interface.
template <class F>
ncclResult_t guarded(F&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return failed(ncclSystemError, "out of memory");  // short enough to need none
  } catch (const std::exception& error) {
    try {
      return failed(ncclInternalError, error.what());
    } catch (...) {
      return ncclInternalError;
    }
  }
}

}  // namespace strait::nccl
