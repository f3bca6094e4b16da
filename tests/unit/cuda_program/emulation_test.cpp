#include "emulation.hpp"

#include <gtest/gtest.h>

#include <string>

#include "plan/request.hpp"
#include "support/peer_push.hpp"
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

/// A call with inputs, poisoned outputs and what they must become. Buffers start `offset` elements into their memory.
struct Call {
  Call(const Case& c, const Program& program, const Plan& plan, std::size_t count, std::uint32_t blocks,
       std::size_t offset, bool in_place)
      : shape(c) {
    for (std::uint32_t rank = 0; rank < c.ranks; ++rank)
      inputs.push_back(strait::testing::random_elements(type, plan[rank].input_blocks() * count, 7 * count + rank));
    for (std::uint32_t rank = 0; rank < c.ranks; ++rank) {
      expected.push_back(strait::testing::reference_output({.collective = c.collective, .type = type, .inputs = inputs}, rank));
      const std::size_t size = std::max(inputs[rank].size(), expected[rank].size());
      memory.emplace_back(size + offset * 2 + 16, std::byte{0xa5});
      std::byte* output = memory.back().data() + offset * 2;
      if (in_place) std::copy(inputs[rank].begin(), inputs[rank].end(), output);
      launch.buffers.push_back({in_place ? output : inputs[rank].data(), output});
    }
    const std::size_t slice_bytes =
        program.bounded_slices ? std::size_t{program.options.block_slot_bytes} * blocks : std::size_t{1} << 40;
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
  Plan plan() const {
    return build_all(*GetParam().algorithm,
                     {.collective = GetParam().collective, .ranks = GetParam().ranks, .peer_memory = true});
  }
};

TEST_P(Emulation, GivesTheReferencesBitsInManyLaunchesOnEnd) {
  const Case& c = GetParam();
  const auto program = compile(plan(), {.protocol = c.protocol, .max_blocks = 3, .block_slot_bytes = 64, .depth = 2});
  ASSERT_TRUE(program) << program.error().message;
  EmulatedGroup group(*program);
  std::deque<Call> calls;
  const bool may_be_in_place = c.collective == Collective::all_reduce;
  for (const std::size_t count : {1, 0, 5, 512, 97, 8, 1031})
    for (const std::uint32_t blocks : {1U, 3U})
      calls.emplace_back(c, *program, plan(), count, blocks, count % 3, may_be_in_place && count % 2 == 1);
  std::vector<EmulatedLaunch> launches;
  for (const Call& call : calls) launches.push_back(call.launch);
  group.run(launches, c.threads, timeout_ns);
  for (const Call& call : calls)
    call.check("chunk of " + std::to_string(call.launch.layout.chunk_elements) + ", " +
               std::to_string(call.launch.blocks) + " blocks");
  for (const ErrorRecord& error : group.control().errors) EXPECT_EQ(error.failure, WaitFailure::none);
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
    ::testing::Values(Case{find_algorithm("one_hop")}, Case{find_algorithm("one_hop"), Collective::all_reduce, Protocol::packet},
                      Case{find_algorithm("two_hop")}, Case{find_algorithm("two_hop"), Collective::all_reduce, Protocol::packet},
                      Case{find_algorithm("two_hop"), Collective::all_reduce, Protocol::packet, 6, 1},
                      Case{find_algorithm("one_hop"), Collective::all_gather},
                      Case{find_algorithm("one_hop"), Collective::all_gather, Protocol::packet},
                      Case{find_algorithm("direct"), Collective::reduce_scatter, Protocol::packet},
                      Case{find_algorithm("direct"), Collective::all_to_all}, Case{&strait::testing::peer_push},
                      Case{&strait::testing::peer_push, Collective::all_reduce, Protocol::simple, 5, 1}),
    case_name);

TEST(EmulationFailure, AMissingRankEndsTheWaitAndIsNamed) {
  const Case c{find_algorithm("one_hop")};
  const Plan plan = build_all(*c.algorithm, {.ranks = 2});
  for (const Protocol protocol : {Protocol::simple, Protocol::packet})
    for (const bool abort : {false, true}) {
      Program program = *compile(plan, {.protocol = protocol, .max_blocks = 1, .block_slot_bytes = 64});
      for (FlatLane& lane : program.ranks[1].lanes) lane.steps = 0;  // rank 1 never takes part
      EmulatedGroup group(program);
      Call call({c.algorithm, Collective::all_reduce, protocol, 2, 2}, program, plan, 16, 1, 0, false);
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
