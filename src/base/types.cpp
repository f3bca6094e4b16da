#include "base/types.hpp"

namespace strait {

std::string_view name(DataType type) {
  constexpr std::string_view names[data_type_count] = {"int8",    "uint8",    "int32",       "uint32",
                                                       "int64",   "uint64",   "float16",     "float32",
                                                       "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
  return names[static_cast<int>(type)];
}

std::string_view name(ReduceOp op) {
  constexpr std::string_view names[reduce_op_count] = {"sum", "prod", "max", "min", "avg", "premul_sum"};
  return names[static_cast<int>(op)];
}

std::string_view name(Collective collective) {
  constexpr std::string_view names[collective_count] = {"all-reduce",   "all-gather", "reduce-scatter", "all-to-all",
                                                        "all-to-all-v", "broadcast",  "reduce",         "gather",
                                                        "scatter",      "send-recv",  "barrier"};
  return names[static_cast<int>(collective)];
}

}  // namespace strait
