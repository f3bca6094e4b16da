#pragma once

#include <exception>
#include <new>
#include <string>

#include "nccl/nccl_abi.h"
#include "strait/strait.h"

/// Translation of Strait's results and error texts to NCCL's.
namespace strait::nccl {

ncclResult_t to_nccl(straitResult_t result);

/// Stores the text for ncclGetLastError, and returns `result`.
ncclResult_t failed(ncclResult_t result, const std::string& text);
/// Translates the result of a Strait call made by this thread; if it failed, stores its error text.
ncclResult_t checked(straitResult_t result);
/// Returns the text of this thread's last error, or if it has had none, of the last error of the process; "" if there
/// is none. Valid until the thread's next call.
const char* last_error();
/// Returns `text` as a C string with the same lifetime. Names of Strait's functions and types in it become NCCL's.
const char* kept_text(std::string text);

/// Runs `body` and turns exceptions into error results: none may cross the C interface.
template <class F>
ncclResult_t guarded(F&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return failed(ncclSystemError, "out of memory");  // fits into std::string's internal buffer: no allocation
  } catch (const std::exception& error) {
    try {
      return failed(ncclInternalError, error.what());
    } catch (...) {
      return ncclInternalError;
    }
  }
}

}  // namespace strait::nccl
