#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace strait {

/// The class of an error. The values are those of straitResult_t (checked in src/api/api.cpp).
enum class Code : int {
  success = 0,
  invalid_argument = 1,  ///< the arguments of a call are wrong; nothing was changed
  invalid_usage = 2,     ///< the arguments are valid, but not at this moment or not in this combination
  system_error = 3,      ///< the operating system refused a request
  cuda_error = 4,
  internal_error = 5,  ///< a defect in Strait
  remote_error = 6,    ///< a peer died, left, or could not be reached
  mismatch = 7,        ///< ranks made different calls, or run with different settings
  timeout = 8,         ///< a deadline passed
  aborted = 9,         ///< the communicator was aborted
  unsupported = 10,    ///< not built in, or not possible on this machine
  out_of_memory = 11,
  in_progress = 12,
};

/// An error names what failed, on which rank and host where that matters, and what to do about it.
struct Error {
  Code code = Code::internal_error;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(Code code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

/// A failed system call: "<what>: <strerror(errno_value)>. <remedy>".
tl::unexpected<Error> fail_errno(std::string what, int errno_value, std::string remedy = "");

}  // namespace strait

/// Returns the error of a Status or Result expression from the enclosing function, if it holds one.
#define STRAIT_TRY(expression)                                     \
  do {                                                             \
    if (auto strait_try_result = (expression); !strait_try_result) \
      return tl::unexpected(std::move(strait_try_result).error()); \
  } while (false)

#define STRAIT_CONCAT_INNER(a, b) a##b
#define STRAIT_CONCAT(a, b) STRAIT_CONCAT_INNER(a, b)

/// `STRAIT_ASSIGN(auto x, expression)`: x becomes the value of a Result expression, or the function returns its error.
#define STRAIT_ASSIGN(declaration, expression)                                         \
  auto STRAIT_CONCAT(strait_result_, __LINE__) = (expression);                         \
  if (!STRAIT_CONCAT(strait_result_, __LINE__))                                        \
    return tl::unexpected(std::move(STRAIT_CONCAT(strait_result_, __LINE__)).error()); \
  declaration = std::move(*STRAIT_CONCAT(strait_result_, __LINE__))
