#pragma once

#include <strait/strait.h>

#include <cstddef>
#include <string>

#include "base/error.hpp"
#include "perf/data.hpp"
#include "perf/geometry.hpp"

namespace strait::perf {

/// The error of a C call, with the library's message; success otherwise.
Status checked(straitResult_t result, straitComm_t comm, const char* what);

/// A collective with its arguments, ready to be called any number of times.
class Call {
 public:
  /// `send` and `receive` are the buffers; in place only `receive` is used. `stream`: of GPU ranks.
  Call(const Operation& operation, void* send, void* receive, straitComm_t comm, straitStream_t stream);

  straitResult_t operator()() const;

 private:
  straitResult_t send_receive() const;

  Collective collective_;
  straitDataType_t type_;
  straitRedOp_t op_;
  int root_;
  int rank_;
  int ranks_;
  std::size_t count_;
  Blocks blocks_;  ///< all-to-all-v
  straitCallOptions_t options_ = STRAIT_CALL_OPTIONS_INITIALIZER;
  void* send_;
  void* receive_;
  straitComm_t comm_;
  straitStream_t stream_;
};

}  // namespace strait::perf
