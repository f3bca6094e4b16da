#include "gpu/race_hunt/calls.hpp"

#include <algorithm>
#include <bit>

namespace strait::race {
namespace {

constexpr std::size_t widest = 8;  ///< bytes of the widest element

HuntedCall make_call(Random& random, const Limits& limits) {
  HuntedCall call;
  perf::Operation& o = call.operation;
  o.collective = static_cast<Collective>(random.below(collective_count));
  if (random.one_in(3)) o.collective = Collective::all_reduce;
  o.type = static_cast<DataType>(random.below(data_type_count));
  o.op = static_cast<ReduceOp>(random.below(static_cast<std::uint64_t>(ReduceOp::avg) + 1));
  o.ranks = limits.ranks;
  o.root = static_cast<std::uint32_t>(random.below(limits.ranks));
  o.in_place = random.one_in(2);
  // All orders of magnitude are equally likely.
  const auto magnitudes = static_cast<std::uint64_t>(std::bit_width(limits.max_bytes));
  const std::size_t top = std::size_t{1} << random.below(magnitudes);
  o.bytes = std::min(top + static_cast<std::size_t>(random.below(top)), limits.max_bytes);
  o.extra_elements = random.one_in(2) ? static_cast<std::size_t>(random.below(most_extra + 1)) : 0;
  const perf::Geometry geometry = o.geometry(0);
  o.in_place = o.in_place && geometry.has_in_place;
  const std::size_t room = table_bytes(limits) / size_bytes(o.type) - geometry.buffer_count();
  call.first = static_cast<std::size_t>(random.below(room));
  call.skew = static_cast<std::uint32_t>(random.below(most_skew + 1));
  return call;
}

Step make_step(Random& random, const Limits& limits) {
  Step step;
  step.stream = static_cast<std::uint32_t>(random.below(limits.streams));
  const std::size_t calls = random.one_in(8) ? 2 + static_cast<std::size_t>(random.below(most_together - 1)) : 1;
  for (std::size_t i = 0; i < calls; ++i) step.calls.push_back(make_call(random, limits));
  return step;
}

std::size_t calls_of(const std::vector<Step>& steps) {
  std::size_t calls = 0;
  for (const Step& step : steps) calls += step.calls.size();
  return calls;
}

/// Returns the bytes beyond max_bytes that a buffer may need: the extra elements of every rank's block, and rounding.
std::size_t slack_bytes(const Limits& limits) { return (most_extra + 2) * widest * limits.ranks; }

}  // namespace

std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return Random(a ^ Random(b).next()).next(); }

/// splitmix64.
std::uint64_t Random::next() {
  std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::size_t Batch::calls() const { return calls_of(captured) * launches.size() + calls_of(eager); }

Batch make_batch(std::uint64_t seed, std::uint64_t number, const Limits& limits) {
  Random random(mix(seed, number));
  Batch batch;
  if (random.one_in(3) && limits.graphs) {
    batch.graph_stream = static_cast<std::uint32_t>(random.below(limits.streams));
    const std::uint64_t steps = 1 + random.below(6);
    for (std::uint64_t i = 0; i < steps; ++i) {
      batch.captured.push_back(make_step(random, limits));
      batch.captured.back().stream = batch.graph_stream;
    }
    const std::uint64_t launches = 1 + random.below(4);
    for (std::uint64_t i = 0; i < launches; ++i)
      batch.launches.push_back(static_cast<std::size_t>(random.below(steps_of_batch)));
    std::sort(batch.launches.begin(), batch.launches.end());
  }
  for (std::uint32_t i = 0; i < steps_of_batch; ++i) batch.eager.push_back(make_step(random, limits));
  return batch;
}

std::size_t table_bytes(const Limits& limits) { return 2 * limits.max_bytes + slack_bytes(limits) + 4096; }

std::size_t buffer_bytes(const Limits& limits) {
  return limits.max_bytes + slack_bytes(limits) + (2 * perf::guard_elements + most_skew) * widest;
}

std::string describe(const HuntedCall& call) {
  const perf::Operation& o = call.operation;
  std::string text(name(o.collective));
  if (is_reduction(o.collective)) text += " " + std::string(name(o.op));
  text += " of " + std::to_string(o.geometry(o.rank).count) + " " + std::string(name(o.type));
  if (has_root(o.collective)) text += ", root " + std::to_string(o.root);
  return text + (o.in_place ? ", in place" : "") + ", buffer at element " + std::to_string(call.skew);
}

}  // namespace strait::race
