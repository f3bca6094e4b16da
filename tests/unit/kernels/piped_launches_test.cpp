// Which calls go through pipes, and how they are launched. Their kernels cannot run without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "call_launches.hpp"
#include "kernels/piped.hpp"

namespace strait::testing {
namespace {

bool takes_two_hops(const DeviceLaunch& launch) { return std::holds_alternative<kernels::TwoHop>(launch.argument); }

/// Returns the size of the slots that a launch uses for one peer.
std::size_t slots_bytes(const DeviceLaunch& launch) {
  if (const auto* two_hop = std::get_if<kernels::TwoHop>(&launch.argument))
    return std::size_t{two_hop->lanes} * two_hop->chunk_bytes * kernels::slot_depth;
  const kernels::Message& message = std::get<kernels::Exchange>(launch.argument).send[1];
  return std::size_t{message.lanes} * message.chunk_bytes * kernels::slot_depth;
}

TEST(PipesOfTwoRanks, CarryLargeCallsWithFewBlocks) {
  struct Expected {
    Collective collective;
    std::size_t from_bytes, below_bytes;
    std::uint32_t blocks;
  };
  const DeviceCalls calls = pair_calls(0);
  for (const Expected& expected : {Expected{Collective::all_reduce, 24 * mb, 192 * mb, 20},
                                   {Collective::all_reduce, 192 * mb, 1024 * mb, 16},
                                   {Collective::all_gather, 48 * mb, 1024 * mb, 32},
                                   {Collective::all_to_all, 64 * mb, 512 * mb, 32},
                                   {Collective::reduce_scatter, 48 * mb, 1024 * mb, 32}}) {
    const auto& [collective, from_bytes, below_bytes, blocks] = expected;
    for (const std::size_t bytes : {from_bytes, below_bytes - 64}) {
      const DeviceLaunch launch = launch_of(calls, collective, bytes);
      EXPECT_TRUE(launch.piped) << name(collective);
      EXPECT_EQ(takes_two_hops(launch), collective == Collective::all_reduce) << name(collective);
      EXPECT_EQ(launch.blocks, blocks) << name(collective) << " " << bytes;
      EXPECT_EQ(launch.threads, kernels::piped_threads) << name(collective);
      EXPECT_LE(slots_bytes(launch), 12 * mb) << name(collective);
    }
    if (from_bytes == 192 * mb) continue;
    const DeviceLaunch below = launch_of(calls, collective, from_bytes - 64);
    EXPECT_TRUE(!below.piped && below.blocks == 128) << name(collective);
  }
  EXPECT_EQ(launch_of(pair_calls(0, 2 * mb, true, 18), Collective::all_reduce, 64 * mb).blocks, 18u) << "as it has SMs";
  for (const Collective other : {Collective::broadcast, Collective::reduce})
    EXPECT_FALSE(launch_of(calls, other, 1000 * mb).piped) << name(other);
}

/// Types whose addition costs the adder warps more than that of the most used types.
TEST(PipesOfTwoRanks, GiveMoreBlocksToWhatCostsMore) {
  for (const std::size_t bytes : {64 * mb, 1000 * mb}) {
    const DeviceLaunch launch = launch_of(pair_calls(0), Collective::all_reduce, bytes, DataType::float8_e4m3);
    EXPECT_TRUE(launch.piped && takes_two_hops(launch));
    EXPECT_EQ(launch.blocks, 32u);
  }
  EXPECT_EQ(launch_of(pair_calls(16), Collective::all_reduce, 64 * mb, DataType::float8_e4m3).blocks, 16u) << "asked";
}

/// Reduces that other kernels compute more slowly than links deliver.
TEST(PipesOfTwoRanks, ReduceWhatTakesLongOtherwise) {
  const auto reduce = [](std::size_t bytes, DataType type, ReduceOp op) {
    return launch_of(pair_calls(0), Collective::reduce, bytes, type, 0, op);
  };
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::prod, ReduceOp::avg}) {
    EXPECT_TRUE(reduce(16 * mb, DataType::int32, op).piped);
    EXPECT_EQ(reduce(32 * mb, DataType::int32, op).blocks, 32u);
    EXPECT_EQ(reduce(32 * mb, DataType::int8, op).blocks, 64u);
    EXPECT_EQ(reduce(48 * mb, DataType::int32, op).piped, op == ReduceOp::avg) << "in bulk all blocks are faster";
    EXPECT_FALSE(reduce(16 * mb - 64, DataType::int32, op).piped);
    EXPECT_FALSE(reduce(32 * mb, DataType::bfloat16, op).piped);
  }
  EXPECT_FALSE(reduce(32 * mb, DataType::int32, ReduceOp::sum).piped);
  EXPECT_FALSE(reduce(32 * mb, DataType::float64, ReduceOp::avg).piped);
  EXPECT_FALSE(reduce(32 * mb, DataType::int32, ReduceOp::premul_sum).piped);
}

/// Each rank adds up half of an all-reduce, because the additions of a block take the time.
TEST(PipesOfTwoRanks, HalveSumsOfFewBlocks) {
  for (const std::uint32_t max_sms : {12u, 16u, 20u, 23u}) {
    const DeviceCalls calls = pair_calls(max_sms);
    const DeviceLaunch launch = launch_of(calls, Collective::all_reduce, 16 * mb);
    EXPECT_TRUE(launch.piped && takes_two_hops(launch)) << max_sms;
    EXPECT_EQ(launch.blocks, max_sms);
    EXPECT_LE(slots_bytes(launch_of(calls, Collective::all_reduce, 1000 * mb)), 12 * mb) << max_sms;
    const DeviceLaunch below = launch_of(calls, Collective::all_reduce, 16 * mb - 64);
    EXPECT_FALSE(below.piped || takes_two_hops(below)) << max_sms;
  }
  for (const std::uint32_t max_sms : {24u, 63u}) {
    const DeviceLaunch launch = launch_of(pair_calls(max_sms), Collective::all_reduce, 64 * mb);
    EXPECT_TRUE(launch.piped && !takes_two_hops(launch)) << max_sms;
    EXPECT_EQ(launch.blocks, max_sms);
  }
}

/// A rank whose buffers cannot be piped moves the same chunks on the same lanes, with all blocks that it may use.
TEST(PipesOfTwoRanks, MeetOtherKernels) {
  for (const auto& [max_sms, blocks] : {std::pair{0u, 80u}, {16u, 16u}}) {
    const DeviceCalls calls = pair_calls(max_sms);
    const DeviceLaunch piped = launch_of(calls, Collective::all_reduce, 64 * mb);
    const DeviceLaunch other = launch_of(calls, Collective::all_reduce, 64 * mb, DataType::bfloat16, 4);
    ASSERT_TRUE(piped.piped && !other.piped && takes_two_hops(piped) && takes_two_hops(other));
    const auto& these = std::get<kernels::TwoHop>(piped.argument);
    const auto& those = std::get<kernels::TwoHop>(other.argument);
    EXPECT_EQ(these.lanes, those.lanes);
    EXPECT_EQ(these.chunk_bytes, those.chunk_bytes);
    EXPECT_EQ(other.blocks, blocks);
    EXPECT_EQ(other.blocks * those.width, those.lanes);
  }
}

/// Other kernels are used if the user asks for many blocks, and for sums with fewer than twelve.
TEST(PipesOfTwoRanks, LeaveTheRest) {
  for (const std::uint32_t max_sms : {11u, 64u, 128u}) {
    const DeviceLaunch launch = launch_of(pair_calls(max_sms), Collective::all_reduce, 64 * mb);
    EXPECT_FALSE(launch.piped || takes_two_hops(launch)) << max_sms;
    EXPECT_EQ(launch.blocks, max_sms);
  }
  EXPECT_FALSE(launch_of(pair_calls(0, 2 * mb, false), Collective::all_reduce, 64 * mb).piped);
  constexpr std::size_t none = std::size_t{1} << 40;
  EXPECT_FALSE(launch_of(pair_calls(0, none), Collective::all_reduce, 1000 * mb).piped);
  EXPECT_FALSE(launch_of(pair_calls(16, none), Collective::all_gather, 1000 * mb).piped);
  EXPECT_TRUE(launch_of(pair_calls(0, 0), Collective::all_reduce, 4096).piped) << "all that can";
}

/// Returns the launch of a group that sends to each rank in `to`, and receives from each rank in `from`.
DeviceLaunch launch_of_messages(const DeviceCalls& calls, std::size_t bytes, const std::vector<std::uint32_t>& to,
                                const std::vector<std::uint32_t>& from) {
  std::vector<Call> group;
  const auto add = [&](bool sends, std::uint32_t peer) {
    Call& call = group.emplace_back();
    call.collective = Collective::send_recv;
    call.type = DataType::uint8;
    call.sends = sends;
    call.peer = peer;
    call.count = bytes;
    call.send = call.receive = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
  };
  for (const std::uint32_t peer : to) add(true, peer);
  for (const std::uint32_t peer : from) add(false, peer);
  const auto launches = calls.launches_of(group);
  EXPECT_EQ(launches.size(), 1u);
  return launches.at(0);
}

TEST(PipesOfTwoRanks, CarryLongMessages) {
  const DeviceCalls calls = pair_calls(0);
  const DeviceLaunch launch = launch_of_messages(calls, 64 * mb, {1}, {1});
  EXPECT_TRUE(launch.piped && launch.blocks == 24u);
  EXPECT_TRUE(launch_of_messages(calls, 64 * mb, {}, {1}).piped);
  EXPECT_FALSE(launch_of_messages(calls, 64 * mb - 16, {1}, {1}).piped);
  EXPECT_FALSE(launch_of_messages(pair_calls(128), 64 * mb, {1}, {1}).piped) << "who asks for many";
}

/// At that length other kernels with more blocks reach more of the link's bandwidth, as NCCL does.
TEST(PipesOfTwoRanks, LeaveTheLongestToAllBlocks) {
  const DeviceCalls calls = pair_calls(0);
  EXPECT_TRUE(launch_of_messages(calls, 256 * mb - 16, {1}, {1}).piped);
  const DeviceLaunch message = launch_of_messages(calls, 256 * mb, {1}, {1});
  EXPECT_TRUE(!message.piped && message.blocks == 128u);
  EXPECT_FALSE(launch_of_messages(calls, 256 * mb, {}, {1}).piped);
  const DeviceLaunch blocks = launch_of(calls, Collective::all_to_all, 512 * mb);
  EXPECT_TRUE(!blocks.piped && blocks.blocks == 128u);
  EXPECT_TRUE(launch_of(pair_calls(16), Collective::all_to_all, 512 * mb).piped) << "who asks for few blocks";
  EXPECT_TRUE(launch_of_messages(pair_calls(0, 0), 256 * mb, {1}, {1}).piped)
      << "who asks for pipes wherever they can be";
}

/// As measured on four H200. In pipes, messages to several peers advance in step, so one of them may wait for another.
TEST(PipesOfFourRanks, CarryMessagesToOnePeer) {
  const DeviceCalls calls = calls_of(4, 0);
  const DeviceLaunch ring = launch_of_messages(calls, 16 * mb, {1}, {3});
  EXPECT_TRUE(ring.piped && !ring.independent);
  EXPECT_EQ(ring.blocks, 32u);
  EXPECT_TRUE(launch_of_messages(calls, 16 * mb, {}, {3}).piped);
  EXPECT_TRUE(launch_of_messages(calls, 16 * mb, {0, 1}, {0, 3}).piped) << "what stays on this rank waits for nobody";
  EXPECT_FALSE(launch_of_messages(calls, 16 * mb - 16, {1}, {3}).piped);
  for (const DeviceLaunch& several :
       {launch_of_messages(calls, 16 * mb, {1, 2}, {}), launch_of_messages(calls, 16 * mb, {1}, {2, 3})}) {
    EXPECT_TRUE(!several.piped && several.independent);
    EXPECT_EQ(several.blocks, 128u);
    const auto &piped = std::get<kernels::Exchange>(ring.argument).send[1],
               &other = std::get<kernels::Exchange>(several.argument).send[1];
    EXPECT_TRUE(piped.lanes == other.lanes && piped.chunk_bytes == other.chunk_bytes);
  }
  const DeviceCalls few_blocks = calls_of(4, 16);
  EXPECT_TRUE(launch_of_messages(few_blocks, 16 * mb, {1, 2}, {3}).piped) << "who asks for few blocks";
  EXPECT_TRUE(launch_of_messages(few_blocks, 4 * mb, {1}, {3}).piped);
  EXPECT_FALSE(launch_of_messages(few_blocks, 4 * mb - 16, {1}, {3}).piped);
  for (const std::uint32_t many : {64u, 128u}) {
    const DeviceLaunch several = launch_of_messages(calls_of(4, many), 16 * mb, {1, 2}, {3});
    EXPECT_TRUE(!several.piped && several.independent) << "who asks for many";
  }
  // If everything that can be piped must be, so are messages to several peers, like those of an all-to-all-v.
  EXPECT_TRUE(launch_of_messages(calls_of(4, 0, 0), 4096, {1, 2}, {3}).piped);
  Call all_to_all_v;
  all_to_all_v.collective = Collective::all_to_all_v;
  all_to_all_v.send_counts = all_to_all_v.receive_counts = std::vector<std::size_t>(4, 16 * mb);
  all_to_all_v.send_offsets = all_to_all_v.receive_offsets = {0, 16 * mb, 32 * mb, 48 * mb};
  for (const auto& [max_sms, piped_unit_bytes, is_piped] :
       {std::tuple(0u, 0 * mb, true), {16u, 2 * mb, true}, {0u, 2 * mb, false}, {64u, 2 * mb, false}})
    EXPECT_EQ(calls_of(4, max_sms, piped_unit_bytes).launches_of(all_to_all_v).at(0).piped, is_piped) << max_sms;
}

/// Pipes wait until what they overwrite has been sent, chunk by chunk, so both must be cut alike.
TEST(PipesOfTwoRanks, DoNotWriteOverWhatIsCutOtherwise) {
  auto* const data = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
  kernels::Exchange exchange{};
  exchange.ring.ranks = 2;
  exchange.ring.has_async_copies = true;
  exchange.send[1] = exchange.receive[1] = {data, 1 << 20, 8 << 10, 16, 0};
  EXPECT_TRUE(kernels::can_be_piped(exchange)) << "in place";
  for (kernels::Message other : {kernels::Message{data, 2 << 20, 16 << 10, 16, 0}, {data, 2 << 20, 8 << 10, 32, 0}}) {
    exchange.receive[1] = other;
    EXPECT_FALSE(kernels::can_be_piped(exchange));
    exchange.receive[1].data = data + (4 << 20);
    EXPECT_TRUE(kernels::can_be_piped(exchange)) << "elsewhere";
  }
}

TEST(PipesOfFourRanks, CarryTheLargestSumsWithoutABound) {
  const DeviceCalls calls = calls_of(4, 0);
  const DeviceLaunch sums = launch_of(calls, Collective::all_reduce, 256 * mb);
  EXPECT_TRUE(sums.piped && takes_two_hops(sums));
  EXPECT_EQ(sums.blocks, 16u);
  EXPECT_EQ(std::get<kernels::TwoHop>(sums.argument).lanes, 64u);
  for (const std::size_t bytes : {64 * mb, 256 * mb - 64}) {
    const DeviceLaunch shorter = launch_of(calls, Collective::all_reduce, bytes);
    EXPECT_TRUE(shorter.piped && shorter.blocks == 32u) << bytes;
    const auto& call = std::get<kernels::TwoHop>(shorter.argument);
    EXPECT_EQ(call.lanes, 128u);
    EXPECT_LE(call.chunk_bytes, 12u << 10) << "as much of the L2 cache as with 64 lanes";
  }
  const DeviceLaunch short_sums = launch_of(calls, Collective::all_reduce, 64 * mb - 64);
  EXPECT_TRUE(!short_sums.piped && short_sums.blocks == 64u);
  const DeviceLaunch large = launch_of(calls, Collective::reduce_scatter, 128 * mb);
  EXPECT_TRUE(large.piped);
  EXPECT_EQ(large.blocks, 32u);
  EXPECT_LE(slots_bytes(large), 6 * mb) << "of each peer, three of which have to stay in the L2 cache";
  const DeviceLaunch below = launch_of(calls, Collective::reduce_scatter, 128 * mb - 64);
  EXPECT_FALSE(below.piped);
  EXPECT_EQ(below.blocks, 64u);
  const DeviceLaunch bounded = launch_of(calls_of(4, 16), Collective::reduce_scatter, 256 * mb);
  EXPECT_TRUE(bounded.piped);
  EXPECT_GT(slots_bytes(bounded), 6 * mb) << "whole slots";
  for (const Collective other : {Collective::all_gather, Collective::all_to_all, Collective::reduce}) {
    const DeviceLaunch launch = launch_of(calls, other, 256 * mb);
    EXPECT_TRUE(launch.piped && launch.blocks == 32u) << name(other);
  }
}

TEST(PipesOfFourRanks, CarryLargeCopiesOfARoot) {
  const DeviceCalls calls = calls_of(4, 0);
  const DeviceLaunch broadcast = launch_of(calls, Collective::broadcast, 64 * mb);
  EXPECT_TRUE(broadcast.piped && takes_two_hops(broadcast) && !broadcast.reduces);
  EXPECT_EQ(broadcast.blocks, 32u);
  EXPECT_TRUE(launch_of(calls_of(4, 64), Collective::broadcast, 64 * mb).piped);
  EXPECT_FALSE(launch_of(calls, Collective::broadcast, 32 * mb).piped);
  EXPECT_FALSE(launch_of(calls, Collective::broadcast, 64 * mb, DataType::bfloat16, 4).piped);
  const DeviceLaunch scatter = launch_of(calls, Collective::scatter, 16 * mb);  // bytes per rank
  EXPECT_TRUE(scatter.piped);
  EXPECT_EQ(scatter.blocks, 24u);
  EXPECT_FALSE(launch_of(calls, Collective::scatter, 16 * mb - 64).piped);
  EXPECT_FALSE(launch_of(calls, Collective::gather, 256 * mb).piped);
}

/// In a reduce and a reduce-scatter, other kernels are faster as soon as they have a few more blocks.
TEST(PipesOfFourRanks, GoByTheBound) {
  const auto is_piped = [](std::uint32_t max_sms, Collective collective, std::size_t bytes) {
    return launch_of(calls_of(4, max_sms), collective, bytes).piped;
  };
  for (const std::uint32_t max_sms : {16u, 48u}) {
    EXPECT_TRUE(is_piped(max_sms, Collective::broadcast, 8 * mb)) << max_sms;
    EXPECT_FALSE(is_piped(max_sms, Collective::broadcast, 4 * mb)) << max_sms;
  }
  EXPECT_FALSE(is_piped(15, Collective::broadcast, 256 * mb));
  EXPECT_TRUE(is_piped(19, Collective::reduce, 128 * mb));
  EXPECT_FALSE(is_piped(20, Collective::reduce, 128 * mb));
  EXPECT_TRUE(is_piped(20, Collective::reduce, 256 * mb));
  EXPECT_TRUE(is_piped(31, Collective::reduce_scatter, 8 * mb));
  EXPECT_FALSE(is_piped(32, Collective::reduce_scatter, 64 * mb - 64));
  EXPECT_TRUE(is_piped(63, Collective::reduce_scatter, 64 * mb));
  for (const std::uint32_t max_sms : {16u, 48u}) {
    EXPECT_TRUE(is_piped(max_sms, Collective::all_reduce, 8 * mb)) << max_sms;
    EXPECT_TRUE(is_piped(max_sms, Collective::all_gather, 8 * mb)) << max_sms;
  }
}

/// All that a gather's root receives comes over one link.
TEST(GathersOfFourRanks, GoInBulkSooner) {
  const auto protocol = [](std::uint32_t ranks, Collective collective, std::size_t bytes) {
    return launch_of(calls_of(ranks, 0), collective, bytes).protocol;
  };
  EXPECT_EQ(protocol(4, Collective::gather, mb / 4), kernels::Protocol::lines);  // bytes per rank
  EXPECT_EQ(protocol(4, Collective::gather, mb / 4 + 64), kernels::Protocol::bulk);
  EXPECT_EQ(protocol(2, Collective::gather, mb), kernels::Protocol::lines);
  EXPECT_EQ(protocol(4, Collective::scatter, mb), kernels::Protocol::lines);
}

/// This is so if there is no limit, so that all blocks are in clusters, but not if a limit asks for few.
TEST(PipesInClusters, AreThoseOfManyBlocks) {
  constexpr std::uint32_t at_once = 128;
  for (const std::uint32_t blocks : {16u, 20u, 24u, 32u, 64u, 128u})
    EXPECT_EQ(kernels::cluster_of(blocks, at_once), 4u);
  for (const std::uint32_t blocks : {1u, 4u, 12u}) EXPECT_EQ(kernels::cluster_of(blocks, at_once), 1u) << "few";
  for (const std::uint32_t blocks : {17u, 63u, 66u})
    EXPECT_EQ(kernels::cluster_of(blocks, at_once), 1u) << "some are left";
  EXPECT_EQ(kernels::cluster_of(132, at_once), 1u) << "they would not all run at once";
  EXPECT_EQ(kernels::cluster_of(16, 0), 1u) << "the GPU has none";
  for (const std::uint32_t ranks : {2u, 4u})
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
      const DeviceLaunch launch = launch_of(ranks == 2 ? pair_calls(0) : calls_of(4, 0), collective, 512 * mb);
      EXPECT_TRUE(launch.piped && kernels::cluster_of(launch.blocks, at_once) == 4) << ranks << name(collective);
    }
}

/// Other kernels gain more from many blocks.
TEST(PipesOfFourRanks, LeaveTheRestToWhoAsksForMany) {
  const DeviceCalls calls = calls_of(4, 128);
  for (const Collective other : {Collective::all_reduce, Collective::reduce_scatter}) {
    const DeviceLaunch launch = launch_of(calls, other, 1024 * mb);
    EXPECT_TRUE(!launch.piped && launch.blocks == 128u) << name(other);
  }
  EXPECT_FALSE(launch_of_messages(calls, 64 * mb, {1}, {3}).piped);
  for (const Collective other : {Collective::all_gather, Collective::reduce})
    EXPECT_TRUE(launch_of(calls, other, 1024 * mb).piped) << name(other);
}

TEST(PipesOfFourRanks, KeepTheLanesOfSumsInTheCache) {
  for (const auto& [blocks, lanes] : {std::pair{12u, 64u}, {16u, 64u}, {24u, 96u}, {32u, 128u}, {48u, 96u}}) {
    const DeviceLaunch launch = launch_of(calls_of(4, blocks), Collective::all_reduce, 256 * mb);
    ASSERT_TRUE(launch.piped && takes_two_hops(launch));
    EXPECT_EQ(launch.blocks, blocks);
    EXPECT_EQ(std::get<kernels::TwoHop>(launch.argument).lanes, lanes) << blocks;
  }
}

}  // namespace
}  // namespace strait::testing
