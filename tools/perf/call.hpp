#pragma once

#include <strait/strait.h>

#include "base/error.hpp"
#include "perf/arguments.hpp"

namespace strait::perf {

/// The error of a C call, with the library's message; success otherwise.
Status checked(straitResult_t result, straitComm_t comm, const char* what);

/// A collective of Strait's with its arguments, ready to be called any number of times.
class Call {
 public:
  /// `stream`: of GPU ranks.
  Call(Arguments arguments, WireFormat wire, straitComm_t comm, straitStream_t stream);

  straitResult_t operator()() const;

 private:
  straitResult_t call(straitRedOp_t op) const;
  straitResult_t send_receive() const;

  Arguments arguments_;
  straitCallOptions_t options_ = STRAIT_CALL_OPTIONS_INITIALIZER;
  straitComm_t comm_;
  straitStream_t stream_;
};

}  // namespace strait::perf
