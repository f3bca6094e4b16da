#pragma once

#include <cstddef>

#include "perf/data.hpp"
#include "perf/geometry.hpp"

namespace strait::perf {

/// What a rank passes to a collective: Strait's conventions, which are NCCL's.
struct Arguments {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t premul_scalar = 0;  ///< an element, in the low bytes
  int root = 0;
  int rank = 0;
  int ranks = 1;
  std::size_t count = 0;
  void* send = nullptr;
  void* receive = nullptr;
  Blocks blocks{};  ///< all-to-all-v

  int next() const { return (rank + 1) % ranks; }  ///< send-recv goes around the ring
  int previous() const { return (rank + ranks - 1) % ranks; }
};

/// `send` and `receive` are the buffers; in place only `receive` is used.
Arguments arguments_of(const Operation& operation, void* send, void* receive);

/// A buffer from one of its elements on.
void* offset(void* buffer, std::size_t elements, DataType type);

}  // namespace strait::perf
