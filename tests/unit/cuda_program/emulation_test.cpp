#include "emulation.hpp"

#include <gtest/gtest.h>

#include <string>

#include "plan/request.hpp"
#include "support/reference.hpp"

namespace strait::cuda::testing {
namespace {

using strait::testing::Bytes;
constexpr std::uint64_t timeout_ns = 20'000'000'000;
constexpr DataType type = DataType::bfloat16;

struct Case {
  const Algorithm* algorithm;
  Collective collective = Collective::all_reduce;
  Protocol protocol = Protocol::simple;
  std::uint32_t ranks = 3;
  std::uint32_t threads = 2;
};

Plan make_plan(const Case& c, bool in_place) {
  PlanRequest request;
  request.collective = c.collective;
  request.ranks = c.ranks;
  request.peer_memory = true;
  request.in_place = in_place;
  return build_all(*c.algorithm, request);
}

/// A call with inputs, poisoned outputs, and the expected outputs. Buffers start `offset` elements into their memory.
struct Call {
  Call(const Case& c, const Program& program, const Plan& plan, std::size_t count, std::uint32_t blocks,
       std::size_t offset, bool in_place)
      : shape(c) {
    for (std::uint32_t rank = 0; rank < c.ranks; ++rank)
      inputs.push_back(strait::testing::random_elements(type, plan[rank].input_blocks() * count, 7 * count + rank));
    for (std::uint32_t rank = 0; rank < c.ranks; ++rank) {
      expected.push_back(
          strait::testing::reference_output({.collective = c.collective, .type = type, .inputs = inputs}, rank));
      const std::size_t size = std::max(inputs[rank].size(), expected[rank].size());
      memory.emplace_back(size + offset * 2 + 16, std::byte{0xa5});
      std::byte* output = memory.back().data() + offset * 2;
      if (in_place) std::copy(inputs[rank].begin(), inputs[rank].end(), output);
      launch.buffers.push_back({in_place ? output : inputs[rank].data(), output});
    }
    const bool whole_chunks = !program.bounded_slices && count % 2 == 0;
    const std::size_t slice_bytes =
        whole_chunks ? std::size_t{1} << 40 : std::size_t{program.options.block_slot_bytes} * blocks;
    launch.layout = Layout(plan[0], count, size_bytes(type), slice_bytes);
    launch.blocks = blocks;
  }

  void check(const std::string& what) const {
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
      const std::span got(static_cast<const std::byte*>(launch.buffers[rank].output), expected[rank].size());
      EXPECT_EQ(strait::testing::first_difference(expected[rank], got, type, inputs), "") << what << ", rank " << rank;
      for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(*(got.data() + got.size() + i), std::byte{0xa5}) << what;
    }
  }

  Case shape;
  std::vector<Bytes> inputs, expected;
  std::deque<Bytes> memory;
  EmulatedLaunch launch;
};

class Emulation : public ::testing::TestWithParam<Case> {
 protected:
  void run_many(bool in_place);
  Plan plan(bool in_place = false) const { return make_plan(GetParam(), in_place); }
};

void Emulation::run_many(bool in_place) {
  const Case& c = GetParam();
  const auto program =
      compile(plan(in_place), {.protocol = c.protocol, .max_blocks = 3, .block_slot_bytes = 64, .depth = 2});
  ASSERT_TRUE(program) << program.error().message;
  EmulatedGroup group(*program);
  std::deque<Call> calls;
  for (const std::size_t count : {1, 0, 5, 512, 97, 8, 1031})
    for (const std::uint32_t blocks : {1U, 3U})
      calls.emplace_back(c, *program, plan(in_place), count, blocks, count % 3, in_place);
  std::vector<EmulatedLaunch> launches;
  for (const Call& call : calls) launches.push_back(call.launch);
  group.run(launches, c.threads, timeout_ns);
  for (const Call& call : calls)
    call.check("chunk of " + std::to_string(call.launch.layout.chunk_elements) + ", " +
               std::to_string(call.launch.blocks) + " blocks");
  for (const ErrorRecord& error : group.control().errors) EXPECT_EQ(error.failure, WaitFailure::none);
}

TEST_P(Emulation, GivesTheReferencesBitsInManyLaunchesOnEnd) { run_many(false); }

TEST_P(Emulation, GivesTheReferencesBitsInPlace) {
  if (GetParam().collective == Collective::all_reduce) run_many(true);
}

TEST_P(Emulation, SurvivesTheWrapOfThePacketsEpoch) {
  const Case& c = GetParam();
  const auto program = compile(plan(), {.protocol = c.protocol, .max_blocks = 1, .block_slot_bytes = 64, .depth = 2});
  ASSERT_TRUE(program) << program.error().message;
  EmulatedGroup group(*program);
  group.pretend_uses((std::uint64_t{1} << 32) - 5);
  Call call(c, *program, plan(), 700, 1, 0, false);
  group.run({call.launch}, c.threads, timeout_ns);
  call.check("around 2^32 uses");
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::string(c.algorithm->name) + "_" + std::to_string(static_cast<int>(c.collective)) + "_" +
         (c.protocol == Protocol::packet ? "packet" : "simple") + "_" + std::to_string(c.ranks);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Emulation,
    ::testing::Values(Case{find_algorithm("one_hop")},
                      Case{find_algorithm("one_hop"), Collective::all_reduce, Protocol::packet},
                      Case{find_algorithm("two_hop")},
                      Case{find_algorithm("two_hop"), Collective::all_reduce, Protocol::packet},
                      Case{find_algorithm("two_hop"), Collective::all_reduce, Protocol::packet, 6, 1},
                      Case{find_algorithm("one_hop"), Collective::all_gather},
                      Case{find_algorithm("one_hop"), Collective::all_gather, Protocol::packet},
                      Case{find_algorithm("direct"), Collective::reduce_scatter, Protocol::packet},
                      Case{find_algorithm("direct"), Collective::all_to_all}, Case{find_algorithm("peer_push")},
                      Case{find_algorithm("peer_push"), Collective::all_reduce, Protocol::simple, 5, 1},
                      Case{find_algorithm("peer_one_hop")}, Case{find_algorithm("peer_two_hop")},
                      Case{find_algorithm("peer_one_hop"), Collective::all_gather}),
    case_name);

TEST(EmulationFailure, AMissingRankEndsTheWaitAndIsNamed) {
  const Case c{find_algorithm("one_hop"), Collective::all_reduce, Protocol::simple, 2, 2};
  const Plan plan = make_plan(c, false);
  for (const Protocol protocol : {Protocol::simple, Protocol::packet})
    for (const bool abort : {false, true}) {
      Program program = *compile(plan, {.protocol = protocol, .max_blocks = 1, .block_slot_bytes = 64});
      for (FlatLane& lane : program.ranks[1].lanes) lane.steps = 0;  // rank 1 never takes part
      EmulatedGroup group(program);
      Call call(c, program, plan, 16, 1, 0, false);
      if (abort) group.control().abort = 1;
      group.run({call.launch}, 2, abort ? timeout_ns : 50'000'000);
      const ErrorRecord& error = group.control().errors[0];
      EXPECT_EQ(error.failure, abort ? WaitFailure::aborted : WaitFailure::timeout);
      EXPECT_EQ(error.peer, 1U);
      EXPECT_EQ(error.step, 1U);
      EXPECT_EQ(error.expected, 1U);
      EXPECT_EQ(group.control().errors[1].failure, WaitFailure::none);
    }
}

}  // namespace
}  // namespace strait::cuda::testing
