#include "base/wire_format.hpp"

namespace strait::wire {

std::string problem(Collective collective, DataType type, ReduceOp op) {
  if (!is_wire_collective(collective))
    return "a wire format is for all-reduce, reduce-scatter, all-gather and all-to-all, not " +
           std::string(name(collective));
  if (!is_wire_type(type)) return "a wire format is for float32, bfloat16 and float16, not " + std::string(name(type));
  if (is_reduction(collective) && !is_wire_op(op))
    return "a wire format is for sums and averages, not " + std::string(name(op));
  return "";
}

}  // namespace strait::wire
