// How many rounds and blocks calls through host memory have.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <variant>
#include <vector>

#include "kernels/layout.hpp"
#include "launches/device_calls.hpp"

namespace strait::testing {
namespace {

using kernels::Protocol;

constexpr std::size_t kb = 1 << 10;

DeviceCalls staged_calls(std::uint32_t ranks, const DeviceCalls::Options& options) {
  const auto layout = kernels::arena_layout(kernels::ArenaKind::host, ranks);
  kernels::Ring ring{};
  ring.ranks = ranks;
  ring.staged = true;
  std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
  return {ring, nullptr, options};
}

/// Returns the number of rounds of a message in a collective of ranks that exchange data through host memory.
std::uint32_t staged_rounds(Collective collective, std::size_t message_bytes, double exchange_gbps = 0,
                            std::uint32_t ranks = 2) {
  DeviceCalls::Options options;
  options.exchange_gbps = exchange_gbps;
  const DeviceCalls calls = staged_calls(ranks, options);
  Call call;
  call.collective = collective;
  call.count = message_bytes;
  call.sends = true;
  call.peer = 1;
  call.send = call.receive = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
  const auto launches =
      collective == Collective::send_recv ? calls.launches_of(std::span(&call, 1)) : calls.launches_of(call);
  EXPECT_EQ(launches.size(), 1u);
  return std::visit([](const auto& argument) { return argument.rounds; }, launches.at(0).argument);
}

/// Returns the length of the longest message that travels as packets, in a collective of four ranks in one hop.
std::size_t longest_in_packets(Collective collective) {
  const DeviceCalls calls = staged_calls(4, {});
  std::size_t longest = 0;
  for (std::size_t bytes = kb; bytes <= 512 * kb; bytes += kb) {
    Call call;
    call.collective = collective;
    call.count = bytes;
    call.send = call.receive = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
    const auto launches =
        collective == Collective::send_recv ? calls.launches_of(std::span(&call, 1)) : calls.launches_of(call);
    if (launches.at(0).protocol == Protocol::packets) longest = bytes;
  }
  return longest;
}

/// In a broadcast and in sends and receives, a rank receives one message instead of three.
TEST(PacketsThroughHostMemory, AreLongerWhereARankTakesLess) {
  EXPECT_EQ(longest_in_packets(Collective::all_gather), 80 * kb);
  EXPECT_EQ(longest_in_packets(Collective::scatter), 80 * kb) << "its root writes three";
  EXPECT_EQ(longest_in_packets(Collective::gather), 40 * kb) << "its root takes three, and sends nothing";
  EXPECT_EQ(longest_in_packets(Collective::reduce), 40 * kb) << "likewise";
  EXPECT_EQ(longest_in_packets(Collective::broadcast), 160 * kb);
  EXPECT_EQ(longest_in_packets(Collective::send_recv), 160 * kb);
}

/// With r rounds, 1/r of a message's time uses a link in one direction only, and a round costs the time that 240 KB
/// take. So for messages of 240 KB times r squared, r rounds cost as much as they save.
TEST(RoundsThroughHostMemory, LetLinksCarryBothWays) {
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::all_to_all}) {
    EXPECT_EQ(staged_rounds(collective, 480 * kb), 1u) << name(collective);
    for (const std::uint32_t rounds : {2U, 3U, 4U, 5U})
      EXPECT_EQ(staged_rounds(collective, rounds * rounds * 240 * kb), rounds) << name(collective);
    EXPECT_EQ(staged_rounds(collective, 9 * 120 * kb, 20), 3u) << "a link of half the rate";
  }
  for (const Collective one_way : {Collective::broadcast, Collective::send_recv})
    EXPECT_EQ(staged_rounds(one_way, 9 * 240 * kb), 1u) << name(one_way);
  const auto layout = kernels::arena_layout(kernels::ArenaKind::host, 2);
  const kernels::ProtocolSlots& bulk = layout.slots[static_cast<std::size_t>(Protocol::bulk)];
  const std::size_t bytes = 256'000 * kb, a_round = std::size_t{bulk.lanes} * bulk.slot_bytes;
  EXPECT_EQ(staged_rounds(Collective::all_gather, bytes), (bytes + a_round - 1) / a_round) << "as slots ask for";
}

/// A message that is written once for all ranks to read takes less time on the way up.
TEST(RoundsThroughHostMemory, AreFewerWhereOneMessageIsForAll) {
  for (const std::uint32_t rounds : {1U, 2U}) {
    EXPECT_EQ(staged_rounds(Collective::all_gather, rounds * rounds * 240 * kb, 0, 4), rounds);
    EXPECT_EQ(staged_rounds(Collective::all_to_all, rounds * rounds * 80 * kb, 0, 4), rounds);
  }
}

DeviceLaunch launch_of(Collective collective, std::size_t bytes, std::uint32_t ranks,
                       const DeviceCalls::Options& options = {}) {
  Call call;
  call.collective = collective;
  call.count = bytes;
  call.send = call.receive = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
  return staged_calls(ranks, options).launches_of(call).at(0);
}

/// With four ranks each lane has its own block, so that links are busy while blocks wait for their fences. If all ranks
/// write to all others, however, not all lanes are used.
TEST(BlocksThroughHostMemory, AreMoreForLongMessages) {
  const auto blocks = [](Collective collective, std::size_t bytes, std::uint32_t ranks) {
    return launch_of(collective, bytes, ranks).blocks;
  };
  for (const Collective collective : {Collective::all_gather, Collective::all_to_all, Collective::broadcast}) {
    EXPECT_EQ(blocks(collective, 1023 * kb, 4), 22u) << name(collective);
    EXPECT_EQ(blocks(collective, 4096 * kb, 2), 32u) << name(collective);
  }
  for (const Collective collective : {Collective::all_gather, Collective::all_to_all, Collective::reduce_scatter})
    EXPECT_EQ(blocks(collective, 4096 * kb, 4), 64u) << name(collective);
  for (const Collective collective : {Collective::broadcast, Collective::gather, Collective::scatter})
    EXPECT_EQ(blocks(collective, 4096 * kb, 4), 90u) << name(collective);
  for (const Collective collective : {Collective::all_reduce, Collective::reduce})
    EXPECT_EQ(blocks(collective, 16 << 20, 4), 64u) << name(collective);
  DeviceCalls::Options few;
  few.max_sms = 16;
  for (const Collective collective : {Collective::all_gather, Collective::gather})
    EXPECT_EQ(launch_of(collective, 4096 * kb, 4, few).blocks, 16u) << name(collective);
}

/// Otherwise there would be times when no block has data under way.
TEST(BlocksThroughHostMemory, BeginOneGroupAfterTheOtherWhereAllSendAndTake) {
  const auto stagger_ns = [](Collective collective, std::size_t bytes, std::uint32_t ranks) {
    return std::visit([](const auto& argument) { return argument.stagger_ns; },
                      launch_of(collective, bytes, ranks).argument);
  };
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    for (const std::uint32_t ranks : {2, 4}) {
      EXPECT_EQ(stagger_ns(collective, 4096 * kb, ranks), 1600u) << name(collective);
      EXPECT_EQ(stagger_ns(collective, 1024 * kb / ranks, ranks), 800u) << name(collective);
    }
    EXPECT_EQ(stagger_ns(collective, 64 * kb, 4), 0u) << "packets wait for no fence";
  }
  EXPECT_EQ(stagger_ns(Collective::all_reduce, 1024 * kb, 4), 800u);
  EXPECT_EQ(stagger_ns(Collective::reduce, 1024 * kb, 4), 800u);
  EXPECT_EQ(stagger_ns(Collective::reduce, 256 * kb, 4), 0u) << "one hop: all but the root send only";
  for (const Collective collective : {Collective::broadcast, Collective::gather, Collective::scatter})
    EXPECT_EQ(stagger_ns(collective, 4096 * kb, 4), 0u) << name(collective);
  EXPECT_EQ(stagger_ns(Collective::all_reduce, 4096 * kb, 1), 0u) << "there is nobody to trade with";
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter}) {
    Call call;
    call.collective = collective;
    call.type = DataType::float32;
    call.wire = WireFormat::int8;
    call.count = 1024 * kb;
    call.send = call.receive = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
    const auto stagger = [](const auto& argument) { return argument.stagger_ns; };
    EXPECT_EQ(std::visit(stagger, staged_calls(4, {}).encoded_launches_of(call).at(0).argument), 1600u)
        << name(collective) << ", encoded";
  }
}

TEST(BlocksThroughHostMemory, OfMessagesBeginOneGroupAfterTheOtherIfARankSendsAndTakes) {
  const auto stagger_ns = [](std::size_t sent_bytes, std::size_t taken_bytes, std::uint32_t from) {
    std::array<Call, 2> calls;
    for (Call& call : calls) call.collective = Collective::send_recv;
    calls[0].sends = true;
    calls[0].peer = 1;
    calls[0].count = sent_bytes;
    calls[1].peer = from;
    calls[1].count = taken_bytes;
    calls[0].send = calls[1].receive = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
    return std::get<kernels::Exchange>(staged_calls(4, {}).launches_of(calls).at(0).argument).stagger_ns;
  };
  for (const std::uint32_t from : {1, 3}) {
    EXPECT_EQ(stagger_ns(4096 * kb, 4096 * kb, from), 1600u);
    EXPECT_EQ(stagger_ns(1024 * kb, 1024 * kb, from), 800u);
    EXPECT_EQ(stagger_ns(512 * kb, 1024 * kb, from), 800u) << "the longer one";
    EXPECT_EQ(stagger_ns(4096 * kb, 0, from), 0u);
    EXPECT_EQ(stagger_ns(0, 4096 * kb, from), 0u);
    EXPECT_EQ(stagger_ns(256 * kb, 256 * kb, from), 0u) << "too short";
    EXPECT_EQ(stagger_ns(16 * kb, 16 * kb, from), 0u) << "packets wait for no fence";
  }
  EXPECT_EQ(stagger_ns(4096 * kb, 4096 * kb, 0), 0u) << "what comes from itself crosses no link";
}

/// A round in which a rank neither sends nor receives would cost as much as any other.
TEST(RoundsThroughHostMemory, AreNoneInWhichARankHasNothingToDo) {
  const auto lead = [](Collective collective, int root) {
    Call call;
    call.collective = collective;
    call.count = 256 * kb;
    call.root = root;
    call.send = call.receive = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
    const auto launches = staged_calls(4, {}).launches_of(call);
    EXPECT_EQ(launches.at(0).protocol, Protocol::bulk) << name(collective);
    return std::get<kernels::Exchange>(launches.at(0).argument).lead;
  };
  for (const int root : {0, 1})  // the rank is 0
    for (const Collective collective :
         {Collective::gather, Collective::scatter, Collective::broadcast, Collective::reduce})
      EXPECT_EQ(lead(collective, root), 0u) << name(collective) << " to or from rank " << root;
  for (const Collective collective : {Collective::all_gather, Collective::all_to_all, Collective::reduce_scatter})
    EXPECT_EQ(lead(collective, 0), 1u) << name(collective);
}

/// Data goes up, down, up and down again. With four ranks there are so many rounds that the four overlap: a round has
/// at most 2 KB per lane, unless there are already eight rounds. There is one round less if chunks are rounded up to
/// pieces.
TEST(RoundsThroughHostMemory, LetHopsOverlap) {
  const auto rounds = [](Collective collective, std::size_t bytes, double gbps = 0) {
    return staged_rounds(collective, bytes, gbps, 4);
  };
  const std::vector<std::tuple<Collective, std::size_t, std::uint32_t>> cases{
      {Collective::reduce, 1024 * kb, 2},     {Collective::reduce, 2048 * kb, 4},
      {Collective::reduce, 4096 * kb, 7},     {Collective::reduce, 8192 * kb, 8},
      {Collective::all_reduce, 512 * kb, 1},  {Collective::all_reduce, 2048 * kb, 3},
      {Collective::all_reduce, 4096 * kb, 6}, {Collective::all_reduce, 8192 * kb, 8}};
  for (const auto& [collective, bytes, expected] : cases)
    EXPECT_EQ(rounds(collective, bytes), expected) << name(collective) << " " << bytes / kb;
  EXPECT_EQ(rounds(Collective::reduce, 2048 * kb, 20), 4u) << "a link of half the rate";
  // This holds for any rate of the link, and for messages however short that go in bulk.
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, 1024 * kb})
    EXPECT_GE(rounds(Collective::all_reduce, bytes, 1e-9), 1u) << bytes;
}

/// Hops in packets, and those of calls that are encoded while sent, overlap only when lanes have more to move.
TEST(RoundsThroughHostMemory, OfOtherHopsAreFew) {
  DeviceCalls::Options options;
  options.hops = Hops::two;
  options.flagged_bytes = 1024 * kb;
  Call call;
  call.collective = Collective::all_reduce;
  call.type = DataType::float32;
  call.count = 1024 * kb / 4;
  call.send = call.receive = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
  const auto launches = staged_calls(4, options).launches_of(call);
  ASSERT_EQ(launches.at(0).protocol, Protocol::packets);
  const auto& packets = std::get<kernels::TwoHop>(launches.at(0).argument);
  EXPECT_EQ(packets.rounds,
            kernels::rounds_of(packets.slice_bytes, kernels::cut(kernels::slots_of(packets.ring, Protocol::packets, 0),
                                                                 packets.slice_bytes)));
  call.wire = WireFormat::int8;
  call.count = 8192 * kb / 4;
  const auto encoded = staged_calls(4, options).encoded_launches_of(call);
  EXPECT_EQ(std::get<kernels::EncodedTwoHop>(encoded.at(0).argument).rounds, 1u);
}

}  // namespace
}  // namespace strait::testing
