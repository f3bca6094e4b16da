#include "executor/host/quantize.hpp"

#include <cassert>

#include "executor/host/float_environment.hpp"
#include "executor/host/quantize_kernels.hpp"

namespace strait {
namespace {

const host::QuantizeTable& kernels(Simd simd) {
  assert(simd <= best_simd());
#if defined(__x86_64__)
  if (simd == Simd::avx512) return host::avx512_quantize_kernels;
  if (simd == Simd::avx2) return host::avx2_quantize_kernels;
#endif
  static_cast<void>(simd);
  return host::portable_quantize_kernels;
}

std::uint8_t* payload_of(const EncodedRun& run) {
  return reinterpret_cast<std::uint8_t*>(run.memory) + run.first_block * wire::payload_bytes(run.format);
}

float* scales_of(const EncodedRun& run) {
  return reinterpret_cast<float*>(run.memory + run.run_blocks * wire::payload_bytes(run.format)) + run.first_block;
}

[[maybe_unused]] bool holds(const EncodedRun& run, std::size_t count) {
  return run.format != WireFormat::off && run.first_block + wire::blocks_of(count) <= run.run_blocks;
}

}  // namespace

void encode(const EncodedRun& to, DataType type, const void* elements, std::size_t count, float* residual, Simd simd) {
  assert(holds(to, count) && wire::is_wire_type(type));
  const host::DefaultFloatEnvironment environment;
  kernels(simd).encode[static_cast<int>(to.format)][host::wire_type_index(type)](
      {elements, residual, count, payload_of(to), scales_of(to)});
}

void decode(DataType type, void* elements, std::size_t count, const EncodedRun& from, Simd simd) {
  assert(holds(from, count) && wire::is_wire_type(type));
  const host::DefaultFloatEnvironment environment;
  kernels(simd).decode[static_cast<int>(from.format)][host::wire_type_index(type)](
      {elements, count, payload_of(from), scales_of(from)});
}

void accumulate(float* sums, std::size_t count, const EncodedRun& from, bool first, Simd simd) {
  assert(holds(from, count));
  const host::DefaultFloatEnvironment environment;
  const host::QuantizeTable& table = kernels(simd);
  (first ? table.set : table.add)[static_cast<int>(from.format)]({sums, count, payload_of(from), scales_of(from)});
}

void recode(const Recoding& call, Simd simd) {
  assert(call.format != WireFormat::off && !call.sources.empty());
  const host::DefaultFloatEnvironment environment;
  kernels(simd).recode[static_cast<int>(call.format)](
      {reinterpret_cast<const std::uint8_t* const*>(call.sources.data()), call.sources.size(),
       reinterpret_cast<std::uint8_t*>(call.result), call.run_blocks, call.runs, call.averaged});
}

}  // namespace strait
