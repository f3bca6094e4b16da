// Measures the cost of selection: of a choice made before, of a communicator's first choice, and of one for 4096 ranks.
//
//   select_cost --benchmark_out=results.json --benchmark_out_format=json
#include <benchmark/benchmark.h>

#include <string>

#include "select/selector.hpp"
#include "support/host_models.hpp"

using namespace strait;

namespace {

Selector selector_for(std::uint32_t ranks) {
  Selector::Settings settings;
  settings.model = host_model(ranks, ranks);
  return Selector(std::move(settings));
}

void stop_on(benchmark::State& state, const Result<const Choice*>& choice) {
  if (!choice) state.SkipWithError(choice.error().message.c_str());
}

/// Repeats the same call.
void repeated(benchmark::State& state) {
  Selector selector = selector_for(16);
  const SelectQuery query{.count = 1 << 20};
  stop_on(state, selector.choose(query));
  for (auto _ : state) benchmark::DoNotOptimize(selector.choose(query));
}
BENCHMARK(repeated);

/// Makes different calls in turn, like a step of a training loop. The argument is their number.
void in_turn(benchmark::State& state) {
  Selector selector = selector_for(16);
  std::vector<SelectQuery> queries(static_cast<std::size_t>(state.range(0)));
  for (std::size_t i = 0; i < queries.size(); ++i) {
    queries[i].count = 1000 * (i + 1);
    stop_on(state, selector.choose(queries[i]));
  }
  std::size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(selector.choose(queries[next]));
    next = next + 1 == queries.size() ? 0 : next + 1;
  }
}
BENCHMARK(in_turn)->Arg(2)->Arg(100);

/// Makes the first call of its kind. Arguments: number of ranks, bytes of float32.
void first(benchmark::State& state) {
  const SelectQuery query{.count = static_cast<std::size_t>(state.range(1)) / 4};
  for (auto _ : state) {
    state.PauseTiming();
    Selector fresh = selector_for(static_cast<std::uint32_t>(state.range(0)));
    state.ResumeTiming();
    stop_on(state, fresh.choose(query));
  }
}
BENCHMARK(first)->ArgsProduct({{2, 4, 16, 64}, {1 << 10, 1 << 20, 64 << 20}})->Unit(benchmark::kMillisecond);

/// Chooses for 512 hosts of 8 H800, whose rates are assumptions. Arguments: collective, bytes of int32 (for which all
/// algorithms may be chosen).
void of_4096_ranks(benchmark::State& state) {
  constexpr std::uint32_t hosts = 512;
  const LevelModel machine = testing::h800_hosts(hosts, 8);
  PlanRequest request;
  request.collective = static_cast<Collective>(state.range(0));
  request.ranks = machine.ranks();
  request.multicast = false;
  auto& host_of = request.shape.levels.emplace_back();
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank) host_of.push_back(rank / 8);
  state.SetLabel(std::string(name(request.collective)));
  for (auto _ : state) {
    const auto choice =
        choose(request, DataType::int32, ReduceOp::sum, static_cast<std::size_t>(state.range(1)) / 4, machine);
    if (!choice) state.SkipWithError(choice.error().message.c_str());
  }
}
BENCHMARK(of_4096_ranks)
    ->ArgsProduct({{int(Collective::all_reduce), int(Collective::all_gather), int(Collective::reduce_scatter),
                    int(Collective::all_to_all), int(Collective::broadcast), int(Collective::reduce)},
                   {1 << 10, 1 << 20, 1 << 30}})
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
