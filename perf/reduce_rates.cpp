/// Measures how fast the CPU reduces, in bytes read and written per second, by type, operation, number of sources and
/// instruction set. Sizes within the first-level cache show the speed of the instructions, large sizes that of memory.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "executor/host/reduce.hpp"

namespace {

using namespace strait;

/// Returns buffers that no other benchmark uses, all at the same offset from a cache line.
std::vector<std::vector<float>> make_buffers(std::size_t buffers, std::size_t size_bytes) {
  return {buffers, std::vector<float>(size_bytes / sizeof(float), 1.0F)};
}

void reduce_rate(benchmark::State& state, Simd simd, DataType type, ReduceOp op, std::size_t sources,
                 std::size_t size_bytes, bool streaming) {
  if (simd > best_simd()) return state.SkipWithError("not on this processor");
  auto buffers = make_buffers(sources + 1, size_bytes);
  std::vector<ReduceSource> inputs;
  for (std::size_t s = 0; s < sources; ++s) inputs.push_back({.pointer = buffers[s].data()});
  const ReduceDestination output{.pointer = buffers.back().data(), .streaming = streaming};
  const ReduceCall call{.type = type,
                        .op = op,
                        .sources = inputs,
                        .destinations = {&output, 1},
                        .count = size_bytes / strait::size_bytes(type),
                        .final = true,
                        .ranks = static_cast<std::uint32_t>(sources)};
  for (auto _ : state) {
    reduce(call, simd);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>((sources + 1) * size_bytes));
}

void add(Simd simd, DataType type, ReduceOp op, std::size_t sources, std::size_t size_bytes, bool streaming = false) {
  const std::string title = std::string(name(simd)) + '/' + std::string(name(type)) + '/' + std::string(name(op)) +
                            "/sources:" + std::to_string(sources) + "/bytes:" + std::to_string(size_bytes) +
                            (streaming ? "/streaming" : "");
  benchmark::RegisterBenchmark(title.c_str(), reduce_rate, simd, type, op, sources, size_bytes, streaming);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::size_t tiny = 64, first_level = 4096, memory = std::size_t{64} << 20;
  for (const Simd simd : {Simd::portable, Simd::avx2, Simd::avx512}) {
    for (int type = 0; type < data_type_count; ++type)
      add(simd, static_cast<DataType>(type), ReduceOp::sum, 2, first_level);
    for (const ReduceOp op : {ReduceOp::prod, ReduceOp::max, ReduceOp::avg})
      add(simd, DataType::float32, op, 2, first_level);
    for (const std::size_t sources : {2, 4, 8, 16}) {
      add(simd, DataType::float32, ReduceOp::sum, sources, tiny);
      add(simd, DataType::float32, ReduceOp::sum, sources, memory);
      add(simd, DataType::float32, ReduceOp::sum, sources, memory, true);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
