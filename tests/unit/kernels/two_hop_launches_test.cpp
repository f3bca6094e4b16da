// How calls in two hops are cut and launched: their rounds, which ranks own slices, and when blocks begin.
#include <gtest/gtest.h>

#include <vector>

#include "call_launches.hpp"

namespace strait::testing {
namespace {

/// Blocks of two hops in bulk begin one after another, if there are enough rounds for that to pay.
TEST(TwoHopsOfFourRanks, Stagger) {
  const auto stagger = [](const DeviceLaunch& launch) { return std::get<kernels::TwoHop>(launch.argument).stagger_ns; };
  const DeviceCalls calls = calls_of(4, 0);
  for (const auto& [collective, bytes] :
       {std::pair{Collective::all_reduce, 60 * mb}, {Collective::broadcast, 32 * mb}}) {
    const DeviceLaunch large = launch_of(calls, collective, bytes);
    EXPECT_FALSE(large.piped);
    EXPECT_EQ(large.protocol, kernels::Protocol::bulk);
    EXPECT_NE(stagger(large), 0u) << name(collective);
    EXPECT_EQ(stagger(launch_of(calls, collective, 4 * mb)), 0u) << name(collective);
  }
  EXPECT_EQ(stagger(launch_of(calls, Collective::all_reduce, 512 * mb)), 0u);
  const DeviceLaunch lines = launch_of(calls, Collective::reduce, 64 * mb);
  EXPECT_EQ(lines.protocol, kernels::Protocol::lines);
  EXPECT_EQ(stagger(lines), 0u);
  EXPECT_EQ(stagger(launch_of(pair_calls(16), Collective::all_reduce, 256 * mb)), 0u) << "two ranks";
  Call encoded;
  encoded.collective = Collective::all_reduce;
  encoded.type = DataType::float32;
  encoded.wire = WireFormat::int8;
  encoded.count = 256 * mb / 4;
  encoded.send = encoded.receive = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
  EXPECT_EQ(std::get<kernels::EncodedTwoHop>(calls.encoded_launches_of(encoded).at(0).argument).stagger_ns, 0u);
}

/// The longer slices are, the more rounds there are.
TEST(TwoHopsOfFourRanks, Overlap) {
  const DeviceCalls calls = calls_of(4, 0);
  const auto rounds = [&](Collective collective, std::size_t bytes) {
    return std::get<kernels::TwoHop>(launch_of(calls, collective, bytes).argument).rounds;
  };
  using Rounds = std::vector<std::uint32_t>;
  const auto rounds_of = [&](Collective collective) {
    Rounds all;
    for (const std::size_t bytes : {2 * mb, 4 * mb, 8 * mb, 16 * mb}) all.push_back(rounds(collective, bytes));
    return all;
  };
  EXPECT_EQ(rounds_of(Collective::all_reduce), (Rounds{1, 1, 3, 3}));
  EXPECT_EQ(rounds_of(Collective::reduce), (Rounds{1, 3, 6, 12}));
  EXPECT_EQ(rounds_of(Collective::broadcast), (Rounds{1, 2, 3, 6}));
  EXPECT_EQ(rounds(Collective::reduce, 64 * mb), 24u);
  EXPECT_EQ(rounds(Collective::broadcast, 48 * mb), 12u);
}

/// If the user allows few blocks, they are busy in any case: there are no more rounds than the size of slots requires.
TEST(TwoHopsOfFourRanks, OfFewBlocksDoNotOverlap) {
  for (const std::uint32_t blocks : {4u, 8u, 12u, 16u}) {
    const DeviceCalls calls = calls_of(4, blocks);
    for (const Collective collective : {Collective::reduce, Collective::broadcast})
      for (const std::size_t bytes : {mb, 4 * mb, 16 * mb, 64 * mb}) {
        const DeviceLaunch launch = launch_of(calls, collective, bytes);
        const bool is_piped = collective == Collective::broadcast && blocks == 16 && bytes >= 8 * mb;
        ASSERT_EQ(launch.piped, is_piped) << name(collective) << " of " << bytes;
        if (is_piped) continue;
        const auto call = std::get<kernels::TwoHop>(launch.argument);
        const std::size_t slot_bytes = calls.ring().slots[static_cast<std::size_t>(launch.protocol)].slot_bytes;
        const std::size_t held = slot_bytes / kernels::piece_bytes * kernels::piece_data_bytes(launch.protocol);
        EXPECT_LE((call.rounds - 1) * call.lanes * held, call.slice_bytes);
      }
    EXPECT_EQ(launch_of(calls, Collective::reduce, 256 * mb).piped, blocks >= 12);
  }
}

/// In the first round there are no results yet for the root's link to carry.
TEST(TwoHopsOfFourRanks, TheRootOfAReduceOwnsOneRound) {
  const DeviceCalls calls = calls_of(4, 0);
  for (const std::size_t bytes : {2 * mb, 8 * mb, 16 * mb}) {
    const auto call = std::get<kernels::TwoHop>(launch_of(calls, Collective::reduce, bytes).argument);
    ASSERT_EQ(call.owners, 0b1111u);
    ASSERT_EQ(call.first_owners, 0b1110u) << "the root has the last slice";
    EXPECT_NEAR(static_cast<double>(bytes - 3 * call.slice_bytes), static_cast<double>(call.slice_bytes) / call.rounds,
                64);
  }
  const auto piped = std::get<kernels::TwoHop>(launch_of(calls, Collective::reduce, 256 * mb).argument);
  EXPECT_EQ(piped.owners, 0b1110u) << "of so many rounds one is nothing";
}

}  // namespace
}  // namespace strait::testing
