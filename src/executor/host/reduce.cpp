#include "executor/host/reduce.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "executor/host/float_environment.hpp"
#include "executor/host/reduce_kernels.hpp"

namespace strait {
namespace {

constexpr std::array<std::string_view, simd_count> simd_names = {"portable", "avx2", "avx512"};

Simd detect_simd() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  if (!__builtin_cpu_supports("avx2") || !f16c) return Simd::portable;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return Simd::avx512;
  return Simd::avx2;
#else
  return Simd::portable;
#endif
}

const host::KernelTable& kernels(Simd simd) {
  assert(simd <= best_simd());
#if defined(__x86_64__)
  if (simd == Simd::avx512) return host::avx512_kernels;
  if (simd == Simd::avx2) return host::avx2_kernels;
#endif
  static_cast<void>(simd);
  return host::portable_kernels;
}

host::Combine combination(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod:
      return host::Combine::prod;
    case ReduceOp::max:
      return host::Combine::max;
    case ReduceOp::min:
      return host::Combine::min;
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      break;
  }
  return host::Combine::sum;
}

/// Orders non-temporal stores before the later store that announces the data; without a fence they are not ordered.
void fence_if_streaming(std::span<const ReduceDestination> destinations) {
#if defined(__x86_64__)
  for (const ReduceDestination& destination : destinations)
    if (destination.streaming) return _mm_sfence();
#endif
  static_cast<void>(destinations);
}

}  // namespace

Simd best_simd() {
  static const Simd best = detect_simd();
  return best;
}

std::string_view name(Simd simd) { return simd_names[static_cast<std::size_t>(simd)]; }

void reduce(const ReduceCall& call, Simd simd) {
  assert(!call.sources.empty());
  const host::KernelCall plain{
      .sources = call.sources.data(),
      .source_count = call.sources.size(),
      .destinations = call.destinations.data(),
      .destination_count = call.destinations.size(),
      .count = call.count,
      .divisor = call.final && call.op == ReduceOp::avg ? call.ranks : 0,
  };
  const host::DefaultFloatEnvironment environment;
  kernels(simd).reduce[static_cast<int>(call.type)][static_cast<int>(combination(call.op))](plain);
  fence_if_streaming(call.destinations);
}

void premultiply(DataType type, void* destination, const void* source, const void* scalar, std::size_t count,
                 Simd simd) {
  alignas(64) std::array<std::byte, 4096> scalars;  // stays in the L1 cache
  const std::size_t width_bytes = size_bytes(type);
  const std::size_t piece = scalars.size() / width_bytes;
  for (std::size_t i = 0; i < std::min(piece, count); ++i)
    std::memcpy(scalars.data() + i * width_bytes, scalar, width_bytes);
  for (std::size_t first = 0; first < count; first += piece) {
    const std::size_t offset_bytes = first * width_bytes;
    const ReduceSource factors[] = {{.pointer = static_cast<const std::byte*>(source) + offset_bytes},
                                    {.pointer = scalars.data()}};
    const ReduceDestination product{.pointer = static_cast<std::byte*>(destination) + offset_bytes};
    reduce({.type = type,
            .op = ReduceOp::prod,
            .sources = factors,
            .destinations = {&product, 1},
            .count = std::min(piece, count - first)},
           simd);
  }
}

void copy(std::span<const ReduceDestination> destinations, const void* source, std::size_t size_bytes, Simd simd) {
  // Small enough for the piece of the source to stay in the L1 cache while all destinations are written.
  constexpr std::size_t piece_bytes = 4096;
  const std::size_t step_bytes = destinations.size() == 1 ? size_bytes : piece_bytes;
  for (std::size_t i = 0; i < size_bytes; i += step_bytes) {
    const std::size_t bytes = std::min(step_bytes, size_bytes - i);
    const auto* from = static_cast<const std::byte*>(source) + i;
    for (const ReduceDestination& destination : destinations) {
      if (destination.pointer == source) continue;
      auto* to = static_cast<std::byte*>(destination.pointer) + i;
      if (destination.streaming) {
        kernels(simd).stream(to, from, bytes);
      } else {
        std::memcpy(to, from, bytes);
      }
    }
  }
  fence_if_streaming(destinations);
}

}  // namespace strait
