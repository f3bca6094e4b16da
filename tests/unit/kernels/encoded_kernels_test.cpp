// Kernels that encode data while they send it, through host memory or peers' memory, on the CPU: every collective in
// every wire format bit by bit, with threads delayed at random, slots reused, and other calls before and after.
#include "support/emulated_machine.hpp"
//
#include <gtest/gtest.h>

#include <thread>
#include <variant>
#include <vector>

#include "host/collective_case.hpp"
#include "support/calls.hpp"
#include "support/random_data.hpp"
#include "support/wire_collectives.hpp"

namespace strait::testing {
namespace {

/// The interface that the checks of wire_collectives.hpp need.
struct Encoders {
  Machine machine;
  std::uint32_t ranks() const { return machine.ranks(); }
  std::uint32_t averaged() const { return machine.averaged(); }
  void run_all(const std::vector<Call>& calls) {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
      threads.emplace_back(
          [this, rank, &call = calls[rank]] { machine.run(machine.calls(rank).encoded_launches_of(call), call.type); });
  }
};

/// The parameter tells whether slots are in peers' memory or in host memory.
class Encoded : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Memory, Encoded, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Peers" : "Host"; });

TEST_P(Encoded, EveryCollective) {
  for (const std::uint32_t ranks : {2u, 3u, 4u}) {
    Encoders encoders{{ranks, 2, {.p2p = GetParam()}}};
    check_wire_collectives(encoders, {1, 127, 515, 4099});
  }
}

/// More chunks than slots: every slot is used again many times.
TEST_P(Encoded, SlotsAreUsedAgain) {
  Encoders encoders{{3, 2, {.p2p = GetParam(), .small_slots = true}}};
  check_wire_collectives(encoders, {20'011, 33'333});
}

/// One block serves several lanes.
TEST_P(Encoded, FewBlocks) {
  Encoders encoders{{2, 6, {.p2p = GetParam(), .small_slots = true}}};
  check_wire_collectives(encoders, {9'999, 17'000}, 1);
}

/// Rings whose ranks stand for whole islands, so that averages divide by a larger number than that of the ring's ranks.
TEST_P(Encoded, DividesByThoseWhoAreAveraged) {
  Encoders encoders{{2, 2, {.p2p = GetParam(), .averaged = 6}}};
  check_wire_collectives(encoders, {1, 129, 700});
}

TEST_P(Encoded, LeavesResidualsWhereTheyBelong) {
  Encoders encoders{{3, 2, {.p2p = GetParam(), .small_slots = true}}};
  check_residuals(encoders, 5'000);
}

/// Exact calls use the same slots before and after.
TEST_P(Encoded, StandsBetweenExactCalls) {
  Encoders encoders{{3, 2, {.p2p = GetParam()}}};
  for (int i = 0; i < 3; ++i) {
    check_wire_collectives(encoders, {2'000});
    CollectiveCase exact;
    exact.collective = Collective::all_gather;
    exact.count = 3'001;
    std::vector<Bytes> inputs, outputs(3, Bytes(3 * exact.count * sizeof(float), poison));
    Bytes expected;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      inputs.push_back(random_input(exact, 3, rank));
      expected.insert(expected.end(), inputs.back().begin(), inputs.back().end());
    }
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t rank = 0; rank < 3; ++rank)
        threads.emplace_back([&, rank] {
          encoders.machine.run(rank, call_of(exact, inputs[rank].data(), outputs[rank].data(), Bytes(4)));
        });
    }
    for (const Bytes& output : outputs) EXPECT_EQ(output, expected);
  }
}

/// Only codes and scales are on the wire, and links carry both ways at once, so there are many chunks.
TEST(EncodedLaunches, CountElements) {
  Machine machine(2, 0, {});
  CollectiveCase c;
  c.count = std::size_t{1} << 24;
  c.wire = WireFormat::int4;
  Bytes data(16);
  const auto launches = machine.calls(0).encoded_launches_of(call_of(c, data.data(), data.data(), Bytes(4)));
  const auto& two_hop = std::get<kernels::EncodedTwoHop>(launches.at(0).argument);
  EXPECT_EQ(two_hop.bytes, c.count);
  EXPECT_EQ(two_hop.slice_bytes, c.count / 2);
  EXPECT_EQ(two_hop.chunk_bytes % wire::granular_run_elements, 0u);
  EXPECT_LE(two_hop.chunk_bytes / wire::granular_run_elements * wire::granular_run_bytes(c.wire),
            two_hop.ring.slots[static_cast<std::size_t>(kernels::Protocol::bulk)].slot_bytes);
  EXPECT_GT(two_hop.rounds, 2u);
}

/// The blocks of all ranks wait for one another, and each takes an SM.
TEST(EncodedLaunches, TakeNoMoreBlocksThanTheSmallestGpuHasSms) {
  Machine machine(3, 0, {});
  CollectiveCase c;
  c.count = std::size_t{1} << 24;
  c.wire = WireFormat::int8;
  Bytes data(16);
  for (const Collective collective : wire_collectives) {
    c.collective = collective;
    const Call call = call_of(c, data.data(), data.data(), Bytes(4));
    const auto blocks_with = [&](std::uint32_t sms) {
      return DeviceCalls(machine.calls(0).ring(), nullptr, {.sms = sms}).encoded_launches_of(call).at(0).blocks;
    };
    EXPECT_EQ(blocks_with(20), 20u) << name(collective);
    EXPECT_GT(blocks_with(0), 20u) << name(collective);
  }
}

/// Through host memory, large calls leave most SMs to other work, unless the user says how many they may use.
TEST(EncodedLaunches, LeaveSmsToOthers) {
  for (const bool p2p : {false, true}) {
    Machine machine(2, 0, {.p2p = p2p});
    CollectiveCase c;
    c.wire = WireFormat::int8;
    Bytes data(16);
    for (const Collective collective : wire_collectives) {
      c.collective = collective;
      const auto blocks_of = [&](std::size_t elements, std::uint32_t max_sms) {
        const bool has_parts = collective != Collective::all_reduce;  // two blocks, in the larger buffer
        c.count = elements / (has_parts ? 2 : 1);
        const Call call = call_of(c, data.data(), data.data(), Bytes(4));
        return DeviceCalls(machine.calls(0).ring(), nullptr, {.max_sms = max_sms})
            .encoded_launches_of(call)
            .at(0)
            .blocks;
      };
      constexpr std::size_t large = 6 << 20;  // float32
      EXPECT_EQ(blocks_of(large, 0), p2p ? 128u : 48u) << name(collective);
      EXPECT_EQ(blocks_of(large - 1024, 0), 128u) << name(collective);
      EXPECT_EQ(blocks_of(large, 128), 128u) << name(collective);
      EXPECT_EQ(blocks_of(large, 16), 16u) << name(collective);
    }
  }
}

}  // namespace
}  // namespace strait::testing
