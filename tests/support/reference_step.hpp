#pragma once

#include <cstring>
#include <vector>

#include "base/reduce_spec.hpp"
#include "executor/host/reduce.hpp"
#include "support/random_data.hpp"

/// What one reducing step must write, computed by a plain loop over base/reduce_spec.hpp.
namespace strait::testing {

namespace detail {
template <class T>
T element_at(const void* pointer, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(pointer) + index * sizeof(T), sizeof(T));
  return value;
}

template <DataType type, ReduceOp op>
spec::AccumulatorType<type> accumulate(const ReduceCall& call, std::size_t i) {
  using Element = spec::ElementType<type>;
  using Accumulator = spec::AccumulatorType<type>;
  const auto load = [&](const ReduceSource& source) -> Accumulator {
    return source.wide ? element_at<Accumulator>(source.pointer, i)
                       : spec::load<type>(element_at<Element>(source.pointer, i));
  };
  Accumulator sum = load(call.sources[0]);
  for (const ReduceSource& source : call.sources.subspan(1)) sum = spec::combine<op>(sum, load(source));
  return call.final ? spec::finish<op>(sum, call.ranks) : sum;
}

template <DataType type, ReduceOp op>
std::vector<Bytes> run_step(const ReduceCall& call) {
  std::vector<Bytes> results(call.destinations.size());
  for (std::size_t d = 0; d < results.size(); ++d) {
    for (std::size_t i = 0; i < call.count; ++i) {
      const auto sum = spec::store<type>(accumulate<type, op>(call, i));
      const auto* bytes = reinterpret_cast<const std::byte*>(&sum);
      results[d].insert(results[d].end(), bytes, bytes + sizeof(sum));
    }
  }
  return results;
}
}  // namespace detail

/// Returns the bytes that each destination of the call must hold afterwards. Writes none of them.
inline std::vector<Bytes> reference_step(const ReduceCall& call) {
  return spec::visit(call.type, [&]<DataType type>() {
    switch (call.op) {
      case ReduceOp::sum:
        return detail::run_step<type, ReduceOp::sum>(call);
      case ReduceOp::prod:
        return detail::run_step<type, ReduceOp::prod>(call);
      case ReduceOp::max:
        return detail::run_step<type, ReduceOp::max>(call);
      case ReduceOp::min:
        return detail::run_step<type, ReduceOp::min>(call);
      case ReduceOp::avg:
        return detail::run_step<type, ReduceOp::avg>(call);
      case ReduceOp::premul_sum:
        break;
    }
    return detail::run_step<type, ReduceOp::premul_sum>(call);
  });
}

}  // namespace strait::testing
