// Calls of GPU ranks over islands, step by step, without a GPU: what the steps of all ranks give together.
#include "communicator/device_islands.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <numeric>
#include <thread>

#include "base/deadline.hpp"
#include "executor/host/host_program.hpp"
#include "host/collective_case.hpp"
#include "plan/request.hpp"
#include "support/island_reference.hpp"
#include "transports/loopback/loopback.hpp"

namespace strait::testing {
namespace {

using Among = IslandStep::Among;

constexpr std::byte poison{0xa5};
constexpr std::size_t guard_bytes = 64;

/// A rank's buffers, and the steps that it has still to make.
struct Rank {
  Bytes memory[2], scratch;
  std::byte *send = nullptr, *receive = nullptr;
  std::vector<IslandStep> steps;
  std::size_t done = 0;
};

/// Carries out the steps of all ranks: one is made when all whom it is among have come to it.
class Machine {
 public:
  Machine(Islands islands, std::size_t scratch_bytes) : islands_(std::move(islands)), scratch_bytes_(scratch_bytes) {
    for (const auto& island : islands_) ranks_ += static_cast<std::uint32_t>(island.size());
  }
  std::uint32_t ranks() const { return ranks_; }
  std::size_t crossings() const { return crossings_; }  ///< elements that ranks gave to steps across islands
  bool carries(const Call& call) const { return DeviceIslands(0, islands_, nullptr, scratch_bytes_).carries(call); }

  void run(std::vector<Rank>& ranks, const std::vector<Call>& calls) {
    crossings_ = 0;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      ranks[rank].scratch.assign(scratch_bytes_ + guard_bytes, poison);
      const DeviceIslands islands(rank, islands_, ranks[rank].scratch.data(), scratch_bytes_);
      ranks[rank].steps = islands.steps_of(calls[rank]);
    }
    for (bool advances = true; advances;) {
      advances = false;
      for (std::uint32_t rank = 0; rank < ranks_; ++rank)
        if (ranks[rank].done < ranks[rank].steps.size() && step(ranks, rank)) advances = true;
    }
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      EXPECT_EQ(ranks[rank].done, ranks[rank].steps.size()) << "rank " << rank << " waits for ever";
      EXPECT_TRUE(std::all_of(ranks[rank].scratch.end() - guard_bytes, ranks[rank].scratch.end(),
                              [](std::byte b) { return b == poison; }));
    }
  }

 private:
  Island members_of(std::uint32_t rank, Among among) const {
    const auto [island, place] = place_of(islands_, rank);
    if (among == Among::island) return islands_[island];
    Island members;
    for (const Island& each : islands_) {
      if (among == Among::all)
        members.insert(members.end(), each.begin(), each.end());
      else
        members.push_back(each.at(place));
    }
    if (among == Among::all) std::sort(members.begin(), members.end());
    return members;
  }

  /// Whether the next step of `rank` could be made, with all who take part.
  bool step(std::vector<Rank>& ranks, std::uint32_t rank) {
    const Among among = ranks[rank].steps[ranks[rank].done].among;
    const Island members = members_of(rank, among);
    std::vector<const Call*> calls;
    for (const std::uint32_t member : members) {
      const Rank& each = ranks[member];
      if (each.done == each.steps.size() || each.steps[each.done].among != among) return false;
      calls.push_back(&each.steps[each.done].call);
    }
    for (const Call* call : calls) EXPECT_EQ(signature(*call), signature(*calls.front()));
    carry_out(calls, among == Among::island ? static_cast<std::uint32_t>(members.size()) : ranks_);
    for (const std::uint32_t member : members) ++ranks[member].done;
    const std::vector<std::size_t>& counts =
        calls[0]->send_counts.empty() ? calls[0]->receive_counts : calls[0]->send_counts;
    const std::size_t elements = std::accumulate(counts.begin(), counts.end(), counts.empty() ? calls[0]->count : 0);
    if (among == Among::across) crossings_ += calls.size() * elements;
    return true;
  }

  /// By plain loops: inputs are read before any output is written.
  static void carry_out(const std::vector<const Call*>& calls, std::uint32_t averaged) {
    const auto count = static_cast<std::uint32_t>(calls.size());
    if (!calls[0]->receive_counts.empty()) return gather_uneven(calls);
    if (!calls[0]->send_counts.empty()) return reduce_uneven(calls, averaged);
    std::vector<Bytes> inputs, scalars;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      inputs.push_back(input_of(*calls[rank], rank, count));
      scalars.emplace_back(calls[rank]->premul_scalar.begin(),
                           calls[rank]->premul_scalar.begin() + size_bytes(calls[rank]->type));
    }
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      const Call& call = *calls[rank];
      ReferenceCall reference{.collective = call.collective,
                              .type = call.type,
                              .op = call.op,
                              .root = call.root,
                              .premul_scalars = scalars,
                              .inputs = inputs};
      Bytes output = reference_output(reference, rank);
      if (is_reduction(call.collective) && call.op == ReduceOp::avg && !output.empty())
        output = average(reference, rank, averaged);
      write(call, output);
    }
  }

  /// An all-gather of blocks of different lengths.
  static void gather_uneven(const std::vector<const Call*>& calls) {
    std::vector<Bytes> blocks;
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      const auto* send = static_cast<const std::byte*>(calls[rank]->send);
      blocks.emplace_back(send, send + calls[rank]->receive_counts[rank] * size_bytes(calls[rank]->type));
    }
    for (const Call* call : calls)
      for (std::size_t from = 0; from < calls.size(); ++from)
        std::copy(blocks[from].begin(), blocks[from].end(),
                  static_cast<std::byte*>(call->receive) + call->receive_offsets[from] * size_bytes(call->type));
  }
  /// A reduce-scatter of blocks of different lengths.
  static void reduce_uneven(const std::vector<const Call*>& calls, std::uint32_t averaged) {
    for (std::uint32_t rank = 0; rank < calls.size(); ++rank) {
      EXPECT_EQ(calls[rank]->send_counts, calls[0]->send_counts);
      EXPECT_LE(calls[0]->send_counts[rank], calls[0]->count);
    }
    std::vector<Bytes> outputs;
    for (std::uint32_t rank = 0; rank < calls.size(); ++rank) {
      std::vector<Bytes> blocks;
      for (const Call* call : calls) {
        const auto* block =
            static_cast<const std::byte*>(call->send) + call->send_offsets[rank] * size_bytes(call->type);
        blocks.emplace_back(block, block + call->send_counts[rank] * size_bytes(call->type));
      }
      const ReferenceCall reference{.collective = Collective::all_reduce,
                                    .type = calls[rank]->type,
                                    .op = calls[rank]->op,
                                    .root = 0,
                                    .premul_scalars = {},
                                    .inputs = blocks};
      outputs.push_back(average(reference, 0, averaged));
    }
    for (std::size_t rank = 0; rank < calls.size(); ++rank)
      std::copy(outputs[rank].begin(), outputs[rank].end(), static_cast<std::byte*>(calls[rank]->receive));
  }

  /// As reference_output(), but divided by the number of all ranks.
  static Bytes average(const ReferenceCall& call, std::uint32_t rank, std::uint32_t averaged) {
    std::vector<ReduceSource> sources;
    for (const Bytes& input : call.inputs) sources.push_back({.pointer = input.data()});
    const ReduceDestination destination;
    const Bytes all = reference_step({.type = call.type,
                                      .op = call.op,
                                      .sources = sources,
                                      .destinations = {&destination, 1},
                                      .count = call.inputs[0].size() / size_bytes(call.type),
                                      .final = true,
                                      .ranks = averaged})[0];
    return call.collective == Collective::reduce_scatter ? detail::block(all, rank, call.inputs.size()) : all;
  }

  static Bytes input_of(const Call& call, std::uint32_t rank, std::uint32_t ranks) {
    const auto* send = static_cast<const std::byte*>(call.send);
    const std::size_t block = call.count * size_bytes(call.type);
    Bytes input(send, send + (send == nullptr ? 0 : buffer_sizes(call, rank, ranks).send_bytes));
    for (std::uint32_t to = 0; to < call.send_offsets.size(); ++to)
      std::copy_n(send + call.send_offsets[to] * size_bytes(call.type), block, input.begin() + to * block);
    return input;
  }

  static void write(const Call& call, const Bytes& output) {
    auto* const receive = static_cast<std::byte*>(call.receive);
    const std::size_t block = call.count * size_bytes(call.type);
    if (call.receive_offsets.empty()) std::copy(output.begin(), output.end(), receive);
    for (std::uint32_t from = 0; from < call.receive_offsets.size(); ++from)
      std::copy_n(output.begin() + from * block, block, receive + call.receive_offsets[from] * size_bytes(call.type));
  }

  Islands islands_;
  std::size_t scratch_bytes_;
  std::uint32_t ranks_ = 0;
  std::size_t crossings_ = 0;
};

Call call_of(const CollectiveCase& c, const Rank& rank, const Bytes& scalar) {
  Call call;
  call.collective = c.collective;
  call.type = c.type;
  call.op = c.op;
  call.root = c.root;
  call.count = c.count;
  call.send = rank.send;
  call.receive = rank.receive;
  std::copy(scalar.begin(), scalar.end(), call.premul_scalar.begin());
  return call;
}

/// Every rank's output has the reference's bits, and nothing else was written. False: the islands do not carry it.
bool check(Machine& machine, const Islands& islands, const CollectiveCase& c) {
  const std::uint32_t count = machine.ranks();
  const BufferBytes sizes = buffer_bytes(c, count);
  const std::size_t bytes = std::max(sizes.send, sizes.receive) + 2 * guard_bytes;
  const bool inside = c.in_place && sizes.receive > sizes.send;
  std::vector<Bytes> inputs, scalars;
  std::vector<Rank> ranks(count);
  std::vector<Call> calls;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    inputs.push_back(random_input(c, count, rank));
    scalars.push_back(random_scalar(c, rank));
    for (Bytes& memory : ranks[rank].memory) memory.assign(bytes, poison);
    std::byte* const base = ranks[rank].memory[0].data() + guard_bytes;
    ranks[rank].send = base + (inside ? own_offset(c, rank) : 0);
    ranks[rank].receive =
        c.in_place ? base + (inside ? 0 : own_offset(c, rank)) : ranks[rank].memory[1].data() + guard_bytes;
    std::copy(inputs[rank].begin(), inputs[rank].end(), ranks[rank].send);
    calls.push_back(call_of(c, ranks[rank], scalars[rank]));
  }
  if (!machine.carries(calls[0])) return false;
  machine.run(ranks, calls);
  const ReferenceCall reference{c.collective, c.type, c.op, c.root, scalars, inputs};
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    const Bytes expected = island_reference_output(reference, rank, islands);
    EXPECT_EQ(first_difference(expected, {ranks[rank].receive, expected.size()}, c.type, inputs), "")
        << strait::testing::describe(c) << " on rank " << rank << " of " << strait::describe(islands);
    if (!c.in_place) {
      EXPECT_TRUE(std::equal(inputs[rank].begin(), inputs[rank].end(), ranks[rank].send)) << "changed its input";
    }
    std::fill_n(ranks[rank].receive, expected.size(), poison);
    Bytes& written = ranks[rank].memory[c.in_place ? 0 : 1];
    const std::span around(written);
    for (const auto guard : {around.first(guard_bytes), around.last(guard_bytes)})
      EXPECT_TRUE(std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == poison; }))
          << strait::testing::describe(c);
  }
  return true;
}

/// Any order of ranks, cut into islands of the sizes.
Islands shuffled(std::span<const std::uint32_t> sizes, std::uint64_t seed) {
  Island ranks(std::accumulate(sizes.begin(), sizes.end(), 0u));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (std::size_t i = ranks.size(); i-- > 1;) std::swap(ranks[i], ranks[mix(seed * 32 + i) % (i + 1)]);
  Islands islands;
  auto next = ranks.begin();
  for (const std::uint32_t size : sizes) {
    islands.emplace_back(next, next + size);
    next += size;
    std::sort(islands.back().begin(), islands.back().end());
  }
  std::sort(islands.begin(), islands.end());
  return islands;
}

constexpr Collective carried[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce,
                                  Collective::all_gather, Collective::broadcast};
constexpr std::size_t scratch_bytes = std::size_t{96} << 10;

CollectiveCase random_case(std::uint64_t seed, std::uint32_t ranks) {
  CollectiveCase c;
  c.collective = carried[mix(seed) % std::size(carried)];
  c.type = static_cast<DataType>(mix(seed + 1000) % data_type_count);
  c.op = static_cast<ReduceOp>(mix(seed + 2000) % reduce_op_count);
  c.root = static_cast<std::uint32_t>(mix(seed + 3000) % ranks);
  c.in_place = mix(seed + 4000) % 2 == 0;
  c.seed = seed;
  const bool copies = !is_reduction(c.collective);
  const std::size_t most_bytes = copies ? 3 << 19 : std::array<std::size_t, 3>{100, 70'000, 300'000}[seed % 3];
  c.count = 1 + mix(seed + 5000) % (most_bytes / size_bytes(c.type));
  if (c.collective == Collective::all_gather || c.collective == Collective::reduce_scatter)
    c.count = 1 + c.count / ranks;
  return c;
}

TEST(DeviceIslands, RandomCallsOverIslandsOfOneSize) {
  constexpr std::uint32_t shapes[][4] = {{2, 2}, {2, 2, 2}, {3, 3}, {4, 4}, {2, 2, 2, 2}, {5, 5}};
  int carried_calls = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    std::vector<std::uint32_t> sizes(std::begin(shapes[seed % std::size(shapes)]),
                                     std::end(shapes[seed % std::size(shapes)]));
    std::erase(sizes, 0u);
    const Islands islands = shuffled(sizes, seed);
    Machine machine(islands, scratch_bytes);
    carried_calls += check(machine, islands, random_case(seed, machine.ranks())) ? 1 : 0;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(carried_calls, 80);
}

TEST(DeviceIslands, RandomCallsOverOtherIslands) {
  constexpr std::uint32_t shapes[][4] = {{2, 1}, {1, 2}, {2, 1, 1}, {3, 2}, {1, 1, 2, 2}, {4, 1, 2}};
  int carried_calls = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    std::vector<std::uint32_t> sizes(std::begin(shapes[seed % std::size(shapes)]),
                                     std::end(shapes[seed % std::size(shapes)]));
    std::erase(sizes, 0u);
    const Islands islands = shuffled(sizes, seed);
    Machine machine(islands, scratch_bytes);
    carried_calls += check(machine, islands, random_case(seed, machine.ranks())) ? 1 : 0;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(carried_calls, 65);
}

/// Which bits come out must not depend on the size.
TEST(DeviceIslands, ReductionsAreCarriedAtEverySize) {
  for (const Islands& islands : {Islands{{0, 1}, {2, 3}}, Islands{{0, 1}, {2}}}) {
    const Machine machine(islands, scratch_bytes);
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
      for (std::size_t count = 1; count < 4'000'000; count = count * 3 + 1) {
        Call call;
        call.collective = collective;
        call.count = count;
        EXPECT_TRUE(machine.carries(call)) << name(collective) << " " << count;
      }
  }
}

/// Of a large all-reduce over islands of k ranks, each rank takes a k-th across.
TEST(DeviceIslands, EachByteCrossesOnceAnIsland) {
  for (const Islands& islands : {Islands{{0, 1}, {2, 3}}, Islands{{0, 1, 2}, {3, 4, 5}}, Islands{{0, 1}, {2}}}) {
    Machine machine(islands, scratch_bytes);
    CollectiveCase c;
    c.count = 48'000;
    EXPECT_TRUE(check(machine, islands, c));
    EXPECT_EQ(machine.crossings(), islands.size() * c.count) << strait::describe(islands);
  }
}

/// Over islands of different sizes, too: of what goes to all ranks each island reads a byte once, and of what is added
/// up it brings one sum.
TEST(DeviceIslands, FirstRanksCrossForTheirIslands) {
  const Islands islands{{0}, {1, 2}, {3, 4}, {5}};
  for (const Collective collective : carried) {
    Machine machine(islands, scratch_bytes);
    CollectiveCase c;
    c.collective = collective;
    const bool has_blocks = collective == Collective::all_gather || collective == Collective::reduce_scatter;
    c.count = has_blocks ? 48'000 : 6 * 48'000;
    EXPECT_TRUE(check(machine, islands, c));
    EXPECT_EQ(machine.crossings(), islands.size() * 6 * 48'000) << name(collective);
  }
}

/// The plan `hierarchical` on the host executor, whose bits these are.
std::vector<Bytes> run_plan(const CollectiveCase& c, const Islands& islands, const std::vector<Bytes>& inputs) {
  const auto count = static_cast<std::uint32_t>(inputs.size());
  PlanRequest request;
  request.collective = c.collective;
  request.ranks = count;
  request.root = c.root;
  request.shape.levels.assign(1, Island(count));
  for (std::uint32_t rank = 0; rank < count; ++rank) request.shape.levels[0][rank] = place_of(islands, rank).island;
  const Algorithm& algorithm = *find_algorithm("hierarchical");
  EXPECT_TRUE(algorithm.supports(request));
  std::vector<Bytes> outputs(count, Bytes(buffer_bytes(c, count).receive));
  slots::Geometry geometry;
  geometry.ranks = count;
  static int number = 0;
  const std::string name = "islands_test_" + std::to_string(++number);
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      const auto transport = loopback::open(name, geometry, rank);
      ASSERT_TRUE(transport);
      HostProgram::Options options;
      options.arithmetic = {c.type, c.op};
      options.count = c.count;
      options.slice_bytes = 4096;
      const auto program = HostProgram::bind(algorithm.build(request, rank), options, **transport);
      ASSERT_TRUE(program) << program.error().message;
      (*program)->start({inputs[rank].data(), outputs[rank].data(), 1, {}});
      const Deadline deadline = Deadline::after_ms(20'000);
      for (auto state = (*program)->progress(); state && *state != HostProgram::State::done && !deadline.expired();
           state = (*program)->progress())
        if (*state == HostProgram::State::idle) std::this_thread::yield();
    });
  threads.clear();
  return outputs;
}

TEST(DeviceIslands, HaveTheBitsOfTheHierarchicalPlan) {
  for (const Islands& islands :
       {Islands{{0, 1}, {2, 3}}, Islands{{0, 3, 5}, {1, 2, 4}}, Islands{{0, 2}, {1, 5}, {3, 4}}})
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter})
      for (const DataType type : {DataType::bfloat16, DataType::float32, DataType::float8_e5m2, DataType::int32})
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::avg}) {
          CollectiveCase c;
          c.collective = collective;
          c.type = type;
          c.op = op;
          c.count = 5003;
          std::vector<Bytes> inputs;
          const std::uint32_t ranks = static_cast<std::uint32_t>(islands.size() * islands[0].size());
          for (std::uint32_t rank = 0; rank < ranks; ++rank) inputs.push_back(random_input(c, ranks, rank));
          const std::vector<Bytes> outputs = run_plan(c, islands, inputs);
          const ReferenceCall reference{collective, type, op, 0, {}, inputs};
          for (std::uint32_t rank = 0; rank < ranks; ++rank)
            EXPECT_EQ(first_difference(island_reference_output(reference, rank, islands), outputs[rank], type, inputs),
                      "")
                << strait::testing::describe(c) << " on rank " << rank << " of " << strait::describe(islands);
        }
}

}  // namespace
}  // namespace strait::testing
