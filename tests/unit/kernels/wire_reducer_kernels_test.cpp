// All-reduces in a wire format that CPU threads add up: kernels that encode and decode, kernels that bring encoded
// runs, and the threads that recode them, on the CPU. The bits are those of two hops.
#include "support/emulated_reducers.hpp"
//
#include "support/emulated_wire.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "executor/host/quantize.hpp"
#include "host/collective_case.hpp"
#include "support/calls.hpp"
#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using cpu_reducers::ReducerMemory;
using namespace std::chrono_literals;

constexpr WireFormat formats[] = {WireFormat::int8, WireFormat::fp8, WireFormat::int4};
constexpr DataType types[] = {DataType::float32, DataType::bfloat16, DataType::float16};
constexpr std::size_t ample = std::size_t{1} << 18;
constexpr std::size_t guard_bytes = 64;
constexpr std::byte poison{0xa5};

class Ranks {
 public:
  Ranks(std::uint32_t ranks, std::size_t scratch_bytes, const ReducedRanks::Options& options = {})
      : averaged_(options.averaged == 0 ? ranks : options.averaged), reduced_(ranks, options) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      scratch_.push_back(std::make_unique<Arena>(scratch_bytes));
      quantized_.emplace_back(rank, ranks, averaged_, scratch_.back()->data(), scratch_bytes, 0);
    }
  }

  void run(std::uint32_t rank, const Call& call, std::chrono::milliseconds late = {}) {
    if (call.wire == WireFormat::off) return reduced_.run(rank, call, late);
    for (const QuantizedStep& step : quantized_[rank].steps_by_reducers(call))
      if (const auto* sum = std::get_if<Call>(&step))
        reduced_.run(rank, *sum, late);
      else
        testing::run(std::get<WireLaunch>(step));
  }
  ReducedRanks& reduced() { return reduced_; }
  std::uint32_t ranks() const { return reduced_.ranks(); }
  std::uint32_t averaged() const { return averaged_; }
  const DeviceQuantized& quantized(std::uint32_t rank) const { return quantized_[rank]; }

 private:
  std::uint32_t averaged_;
  std::vector<std::unique_ptr<Arena>> scratch_;
  std::vector<DeviceQuantized> quantized_;
  ReducedRanks reduced_;
};

Call wire_call_of(const CollectiveCase& c, const std::byte* input, std::byte* output, const Bytes& scalar) {
  Call call = call_of(c, input, output, scalar);
  call.wire = c.wire;
  return call;
}

/// Makes all calls on every rank, one after another. One rank is `late` by that time before each call.
void check(Ranks& machine, const std::vector<CollectiveCase>& cases, std::chrono::milliseconds late = {}) {
  const std::uint32_t ranks = machine.ranks();
  std::vector<std::vector<Bytes>> inputs(cases.size()), scalars(cases.size());
  std::vector<Bytes> expected;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const CollectiveCase& c = cases[i];
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      inputs[i].push_back(random_input(c, ranks, rank));
      scalars[i].push_back(random_scalar(c, rank));
    }
    const ReferenceCall reference{c.collective, c.type, c.op, c.root, scalars[i], inputs[i]};
    expected.push_back(c.wire == WireFormat::off ? reference_output(reference, 0)
                                                 : wire_reference_output(c.wire, reference, 0, machine.averaged()));
  }
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const CollectiveCase& c = cases[i];
        const std::size_t begin = guard_bytes + c.misalignment_bytes, size = expected[i].size();
        Bytes input(begin + size + guard_bytes, poison), output(begin + size + guard_bytes, poison);
        std::copy(inputs[i][rank].begin(), inputs[i][rank].end(), input.data() + begin);
        Bytes& written = c.in_place ? input : output;
        machine.run(rank, wire_call_of(c, input.data() + begin, written.data() + begin, scalars[i][rank]),
                    rank == i % ranks ? late : 0ms);
        EXPECT_EQ(first_difference(expected[i], {written.data() + begin, size}, c.type), "")
            << describe(c) << " on rank " << rank << " of " << ranks;
        std::fill_n(written.data() + begin, size, poison);
        EXPECT_EQ(written, Bytes(written.size(), poison)) << describe(c);
      }
    });
}

CollectiveCase all_reduce(std::uint64_t seed, WireFormat wire, DataType type, std::size_t count) {
  CollectiveCase c;
  c.type = type;
  c.wire = wire;
  c.op = std::array{ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}[seed % 3];
  if (wire == WireFormat::off && c.op == ReduceOp::premul_sum) c.op = ReduceOp::max;
  c.count = count;
  c.in_place = seed / 3 % 2 == 0;
  c.misalignment_bytes = std::array<std::size_t, 3>{0, size_bytes(type), 1}[seed / 2 % 3];
  c.seed = seed + 1;
  return c;
}

/// Returns all-reduces of one element, with odd ends of blocks and of runs, and of more chunks than slots.
std::vector<CollectiveCase> all_reduces() {
  constexpr std::size_t counts[] = {1, 511, 513, 700, 5003, 60'001, 127, 128, 9000};
  std::vector<CollectiveCase> cases;
  for (const WireFormat wire : formats)
    for (const DataType type : types)
      cases.push_back(all_reduce(cases.size(), wire, type, counts[cases.size() * 5 % std::size(counts)]));
  return cases;
}

TEST(WireReducers, GiveTheBitsOfTwoHops) {
  for (const std::uint32_t ranks : {2u, 3u, 5u, 10u}) {
    Ranks machine(ranks, ample);
    check(machine, all_reduces());
  }
}

/// As if these ranks were a part of a larger communicator whose averages divide by six.
TEST(WireReducers, DivideByThoseWhoAreAveraged) {
  Ranks machine(2, ample, {.averaged = 6});
  check(machine, all_reduces());
}

/// Several lanes per thread, one block for all lanes, and a rank that comes late.
TEST(WireReducers, ShareLanes) {
  Ranks machine(3, ample, {.lanes = 5, .max_sms = 1, .threads = {.threads = 1, .spin_us = 0, .nap_us = 20}});
  check(machine, all_reduces(), 5ms);
}

/// Scratch for one or two runs: many passes, the last of them shorter.
TEST(WireReducers, TakeTurnsWhereScratchIsShort) {
  for (const std::size_t bytes : {std::size_t{544}, std::size_t{2 * 528}}) {
    Ranks machine(2, bytes);
    check(machine, {all_reduce(0, WireFormat::int8, DataType::float32, 5003),
                    all_reduce(1, WireFormat::fp8, DataType::bfloat16, 2048),
                    all_reduce(4, WireFormat::int4, DataType::float16, 513)});
  }
}

/// Both use the same slots, but divide them differently.
TEST(WireReducers, AlternateWithExactCalls) {
  Ranks machine(3, ample);
  std::vector<CollectiveCase> cases;
  for (int turn = 0; turn < 4; ++turn)
    for (const WireFormat wire :
         {WireFormat::off, WireFormat::int4, WireFormat::off, WireFormat::int8, WireFormat::fp8})
      cases.push_back(all_reduce(cases.size(), wire, types[cases.size() % 3], 3001 + 1000 * cases.size()));
  check(machine, cases);
}

/// The residual is what encoding the rank's input loses. What encoding the sum loses is in no rank's residual.
TEST(WireReducers, LeaveTheResidualOfTheHost) {
  constexpr std::uint32_t ranks = 2;
  Ranks machine(ranks, 2 * 528);
  const CollectiveCase c = all_reduce(0, WireFormat::int8, DataType::float32, 3001);
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Bytes data = random_input(c, ranks, rank), run(encoded_bytes(c.wire, wire::blocks_of(c.count)));
      std::vector<float> residual(c.count);
      for (std::size_t i = 0; i < c.count; ++i)
        residual[i] = static_cast<float>(static_cast<std::int32_t>(mix(i + rank))) * 0x1p-26F;
      std::vector<float> expected = residual;
      encode({c.wire, run.data(), wire::blocks_of(c.count)}, c.type, data.data(), c.count, expected.data());
      Call call = wire_call_of(c, data.data(), data.data(), Bytes(8));
      call.residual = residual.data();
      machine.run(rank, call);
      EXPECT_EQ(
          first_difference(std::as_bytes(std::span(expected)), std::as_bytes(std::span(residual)), DataType::float32),
          "");
    });
}

/// Kernels give up. The output is unchanged until the decoder runs, and callers ignore the output of a failed call.
TEST(WireReducers, NameWhomTheyWaitFor) {
  Ranks machine(3, ample, {.timeout_ns = 30'000'000});
  const CollectiveCase c = all_reduce(0, WireFormat::int8, DataType::float32, 3000);
  std::vector<std::jthread> threads;
  for (const std::uint32_t rank : {0u, 2u})
    threads.emplace_back([&, rank] {
      Bytes data(4 * c.count);
      machine.run(rank, wire_call_of(c, data.data(), data.data(), Bytes(8)));
      EXPECT_EQ(machine.reduced().mailbox(rank).event, kernels::Mailbox::Event::timeout);
      EXPECT_EQ(machine.reduced().mailbox(rank).peer, 77u);
    });
  threads.clear();
  for (const std::uint32_t rank : {0u, 2u}) EXPECT_EQ(machine.reduced().reducers(rank).awaited_rank(), 1u);
}

/// Runs of the two formats have the same length, yet no rank takes one format for the other.
TEST(WireReducers, DoNotMixFormats) {
  Ranks machine(2, ample, {.timeout_ns = 50'000'000});
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const CollectiveCase c = all_reduce(0, formats[rank], DataType::float32, 1000);
      Bytes data(4 * c.count);
      machine.run(rank, wire_call_of(c, data.data(), data.data(), Bytes(8)));
      EXPECT_EQ(machine.reduced().mailbox(rank).event, kernels::Mailbox::Event::timeout);
    });
}

/// Whether asleep or in short naps, a rank's threads end after an abort.
TEST(WireReducers, EndWhenAborted) {
  Ranks machine(2, ample, {.threads = {.threads = 2, .spin_us = 0, .nap_us = 20}, .timeout_ns = 30'000'000});
  EXPECT_TRUE(await_adding_threads(4));
  Bytes data(4 * 3000);
  const CollectiveCase c = all_reduce(0, WireFormat::fp8, DataType::float32, 3000);
  machine.run(0, wire_call_of(c, data.data(), data.data(), Bytes(8)));
  machine.reduced().reducers(0).abort();
  EXPECT_TRUE(await_adding_threads(2));
}

/// Chunks are whole runs, even in the smallest slots, and one long exchange is one pass.
TEST(WireReducers, CutChunksIntoWholeRuns) {
  for (const WireFormat format : formats)
    for (const std::uint32_t slot_bytes : {4096u, 10'240u, 24'576u})
      for (const std::uint32_t blocks : {1u, 6u, 128u})
        for (const std::size_t runs : {std::size_t{1}, std::size_t{3}, std::size_t{1000}, std::size_t{90'000}}) {
          kernels::Slots through{kernels::Protocol::bulk, slot_bytes, 128, blocks};
          through.grain_bytes = ReducerMemory::run_bytes(format);
          const kernels::Cut parts = kernels::cut(through, runs * through.grain_bytes);
          EXPECT_EQ(through.grain_bytes % 16, 0u);
          EXPECT_EQ(parts.chunk_bytes % through.grain_bytes, 0u) << name(format);
          EXPECT_LE(parts.chunk_bytes, slot_bytes);
          EXPECT_GE(
              std::size_t{kernels::rounds_of(runs * through.grain_bytes, parts)} * parts.lanes * parts.chunk_bytes,
              runs * through.grain_bytes);
        }
}

}  // namespace
}  // namespace strait::testing
