// The plans chosen on the built-in machines, compared with times computed by hand: the bytes that must cross the
// limiting resource, divided by its rate. No number here comes from the simulator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "sim/explain.hpp"
#include "topology/builtin_machines.hpp"

namespace strait::sim {
namespace {

using testing::AnyOfArray;

constexpr double kib = 1 << 10;
constexpr double mib = 1 << 20;
/// Returns the microseconds that `bytes` take at `gbps`.
double us(double bytes, double gbps) { return bytes / gbps * 1e-3; }

struct Case {
  const char* machine_name;
  std::uint32_t ranks;
  Collective collective;
  DataType type;
  double bytes;
  std::vector<std::string> algorithms;  ///< the choice must be one of these
  const char* executor;
  const char* level;  ///< the level that limits, or "latency"
  double bound_us;    ///< computed by hand
  double most = 1.1;  ///< largest allowed time, as a multiple of the bound
};

constexpr auto f32 = DataType::float32;
constexpr auto i32 = DataType::int32;
constexpr auto all_reduce = Collective::all_reduce;
constexpr double s = 64 * mib;

void PrintTo(const Case& c, std::ostream* stream) {
  *stream << c.machine_name << ", " << c.ranks << " ranks, " << name(c.collective) << " of " << c.bytes << " bytes, "
          << name(c.type);
}

std::vector<Case> cases() {
  return {
      // Five GPUs share a root port of 3 GB/s, and each must write its input once: 5 S up. If CPUs add, 5 S come down.
      {"10x-rtx3090", 10, all_reduce, f32, s, {"staged"}, "GPU, CPU sums", "shared PCIe", us(5 * s, 3)},
      {"10x-rtx3090", 5, all_reduce, f32, s, {"staged"}, "GPU, CPU sums", "shared PCIe", us(5 * s, 3)},
      {"10x-rtx3090", 10, all_reduce, i32, s, {"staged"}, "GPU, CPU sums", "shared PCIe", us(5 * s, 3)},
      // Each of the five reads nine tenths, from the other nine GPUs.
      {"10x-rtx3090",
       10,
       Collective::all_gather,
       f32,
       s,
       {"staged", "one_hop"},
       "GPU",
       "shared PCIe",
       us(5 * 0.9 * s, 3)},
      // Each of the five writes nine tenths of its input, and reads as much.
      {"10x-rtx3090", 10, Collective::all_to_all, f32, s, {"direct"}, "GPU", "shared PCIe", us(5 * 0.9 * s, 3), 2.1},
      // Five GPUs read 9 x 1 KB each through the port.
      {"10x-rtx3090", 10, all_reduce, f32, 1024, {"one_hop"}, "GPU", "shared PCIe", us(5 * 9 * 1024.0, 3), 2.0},
      // Below 32 KB GPUs add: each of the five reads nine tenths twice.
      {"10x-rtx3090",
       10,
       all_reduce,
       f32,
       16 * kib,
       {"staged", "two_hop"},
       "GPU",
       "shared PCIe",
       us(5 * 1.8 * 16 * kib, 3),
       1.65},
      // In two slices a lane what goes up and what comes down hardly overlap.
      {"10x-rtx3090",
       10,
       all_reduce,
       f32,
       64 * kib,
       {"staged"},
       "GPU, CPU sums",
       "shared PCIe",
       us(5 * 64 * kib, 3),
       2},
      {"10x-rtx3090", 10, all_reduce, f32, mib, {"staged"}, "GPU, CPU sums", "shared PCIe", us(5 * mib, 3), 1.15},
      // Three islands behind a port, each of which reads the data of the five others. Three kernels run one after
      // another.
      {"10x-rtx3090-bridged",
       10,
       all_reduce,
       f32,
       kib,
       {"islands"},
       "GPU",
       "shared PCIe",
       3 * 3 + us(3 * 5 * kib, 3),
       2.2},
      // CPUs add what crosses: each island writes and reads it once.
      {"10x-rtx3090-bridged",
       10,
       all_reduce,
       f32,
       mib,
       {"islands"},
       "GPU, CPU sums",
       "shared PCIe",
       us(3 * mib, 3),
       1.15},
      // Floating-point sums, too, are computed within islands first.
      {"10x-rtx3090-bridged", 10, all_reduce, f32, s, {"islands"}, "GPU, CPU sums", "shared PCIe", us(3 * s, 3)},
      // Three islands behind a port, one single GPU and two pairs, each of which writes its sum once.
      {"10x-rtx3090-bridged", 10, all_reduce, i32, s, {"islands"}, "GPU, CPU sums", "shared PCIe", us(3 * s, 3)},
      // The single GPU reads nine tenths, and each pair reads eight tenths.
      {"10x-rtx3090-bridged",
       10,
       Collective::all_gather,
       f32,
       s,
       {"islands"},
       "GPU",
       "shared PCIe",
       us((0.9 + 2 * 0.8) * s, 3)},
      // An island writes the part of its sum that it does not keep: nine tenths, and twice eight tenths.
      {"10x-rtx3090-bridged",
       10,
       Collective::reduce_scatter,
       i32,
       s,
       {"islands"},
       "GPU",
       "shared PCIe",
       us((0.9 + 2 * 0.8) * s, 3)},
      // The five GPUs behind a port receive blocks from all others; the blocks of bridged partners go over their
      // bridges.
      {"10x-rtx3090-bridged",
       10,
       Collective::all_to_all,
       f32,
       s,
       {"islands"},
       "GPU",
       "shared PCIe",
       us((0.9 + 4 * 0.8) * s, 3)},
      // Three islands of the other socket read the whole message.
      {"10x-rtx3090-bridged", 10, Collective::broadcast, f32, s, {"islands"}, "GPU", "shared PCIe", us(3 * s, 3)},
      // Each of ten ranks sends a twentieth of its input to each of ten ranks of the other host, and as much of the
      // results. Bridges do not matter, because the network is the limit.
      {"2-hosts-10x-rtx3090",
       20,
       all_reduce,
       f32,
       s,
       {"staged"},
       "GPU, CPU sums",
       "NIC",
       us(2 * 10 * 10 * s / 20, 2.5)},
      {"2-hosts-10x-rtx3090",
       20,
       all_reduce,
       f32,
       64 * kib,
       {"staged", "two_hop"},
       "GPU, CPU sums",
       "NIC",
       us(2 * 10 * 10 * 64 * kib / 20, 2.5),
       1.7},
      {"2-hosts-10x-rtx3090-bridged",
       20,
       all_reduce,
       f32,
       s,
       {"staged"},
       "GPU, CPU sums",
       "NIC",
       us(2 * 10 * 10 * s / 20, 2.5)},
      {"2-hosts-10x-rtx3090-bridged",
       20,
       all_reduce,
       f32,
       64 * kib,
       {"staged", "two_hop"},
       "GPU, CPU sums",
       "NIC",
       us(2 * 10 * 10 * 64 * kib / 20, 2.5),
       1.7},
      // Each of ten ranks reads the inputs of the other host's ten ranks.
      {"2-hosts-10x-rtx3090", 20, all_reduce, f32, kib, {"one_hop"}, "GPU", "NIC", us(10 * 10 * kib, 2.5), 1.8},
      {"2-hosts-10x-rtx3090-bridged", 20, all_reduce, f32, kib, {"one_hop"}, "GPU", "NIC", us(10 * 10 * kib, 2.5), 1.8},
      // Each of two GPUs of a socket fetches a quarter from each of two GPUs of the other socket, and pushes its sum to
      // each of them: 2 S each way.
      {"4x-rtx-pro-6000",
       4,
       all_reduce,
       f32,
       s,
       {"staged", "two_hop"},
       "GPU",
       "sockets",
       us(2 * 2 * s / 4 + 2 * 2 * s / 4, 60)},
      // Every GPU reads 3/4 S, or is written to, twice.
      {"4x-h200", 4, all_reduce, f32, s, {"staged", "two_hop"}, "GPU", "NVLink", us(1.5 * s, 391)},
      {"4x-h200",
       4,
       all_reduce,
       f32,
       256 * mib,
       {"staged", "two_hop"},
       "GPU",
       "NVLink",
       us(1.5 * 256 * mib, 391),
       1.05},
      // Without P2P, everything that goes between GPUs of different sockets crosses between the sockets: two GPUs of a
      // socket read two quarters each of the other socket's inputs, and its two sums each.
      {"4x-h200-no-p2p",
       4,
       all_reduce,
       DataType::bfloat16,
       256 * mib,
       {"staged"},
       "GPU",
       "sockets",
       us(2 * 2 * 256 * mib / 4 + 2 * 2 * 256 * mib / 4, 60),
       1.05},
      {"4x-h200",
       4,
       Collective::reduce_scatter,
       f32,
       256 * mib,
       {"direct", "staged"},
       "GPU",
       "NVLink",
       us(0.75 * 256 * mib, 391)},
      {"8x-h800",
       8,
       all_reduce,
       f32,
       256 * mib,
       {"staged", "two_hop"},
       "GPU",
       "NVLink",
       us(2 * 7 / 8.0 * 256 * mib, 160),
       1.05},
      {"nvl72",
       72,
       all_reduce,
       f32,
       256 * mib,
       {"peer_push"},
       "GPU",
       "NVLink",
       us(2 * 71 / 72.0 * 256 * mib, 900),
       1.2},
      // Islands first: NVLink carries 2 x 7/8 S, a NIC only an eighth of S. The other plans send S through each NIC.
      {"32-hosts-8x-h800",
       16,
       all_reduce,
       i32,
       256 * mib,
       {"hierarchical"},
       "GPU",
       "NVLink",
       us(2 * 7 / 8.0 * 256 * mib, 160),
       1.5},
      {"8x-h100-superpod",
       16,
       all_reduce,
       i32,
       256 * mib,
       {"hierarchical"},
       "GPU",
       "NVLink",
       us(2 * 7 / 8.0 * 256 * mib, 370),
       1.9},
      // Sums that must be rounded once have no such plan: an eighth of 8/16 of each input goes out twice, S in all.
      {"32-hosts-8x-h800",
       16,
       all_reduce,
       f32,
       256 * mib,
       {"staged", "two_hop"},
       "GPU",
       "GPU link",
       us(8 * 2 * 256 * mib / 16, 50),
       2.2},
      // Four ranks read S and write S in DRAM, minus what each may save by 12 MB of cache.
      {"laptop", 4, all_reduce, f32, s, {"staged", "two_hop"}, "CPU", "DRAM", us(8 * s - 2 * 12582912, 30)},
  };
}

class Bounds : public testing::TestWithParam<Case> {};

TEST_P(Bounds, TheChoiceIsOfTheFamilyAndNearTheBound) {
  const Case& c = GetParam();
  const auto e = explain({c.machine_name, c.ranks, false}, {c.collective, c.type, ReduceOp::sum, 0},
                         static_cast<std::size_t>(c.bytes), "");
  ASSERT_TRUE(e) << e.error().message;
  const PredictedPlan& choice = e->prediction.choice();
  EXPECT_THAT(choice.algorithm, AnyOfArray(c.algorithms));
  EXPECT_EQ(choice.executor, c.executor);
  const auto levels = level_uses(e->machine, choice.time);
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front().level, c.level);
  EXPECT_GE(choice.time.total_us, 0.9999 * c.bound_us);
  EXPECT_LE(choice.time.total_us, c.most * c.bound_us);
}

INSTANTIATE_TEST_SUITE_P(All, Bounds, testing::ValuesIn(cases()));

struct Limit {
  const char* machine_name;
  std::uint32_t ranks;
  double bus_gbps;  ///< bus bandwidth of an all-reduce, computed by hand
};

/// An all-reduce of S takes at least S divided by the rate at which a GPU can send, alone or as its share; bus
/// bandwidth is 2 (n - 1) / n times S over the time. If ranks add by themselves, each also moves 2 (n - 1) / n S, so
/// bus bandwidth stays below the link's own.
class Limits : public testing::TestWithParam<Limit> {};

TEST_P(Limits, NoPlanHasMoreBusBandwidthThanTheLinks) {
  const Limit& limit = GetParam();
  for (const std::size_t bytes : {std::size_t{4} << 10, std::size_t{1} << 20, std::size_t{33} << 20}) {
    const auto e = explain({limit.machine_name, limit.ranks, false}, {.type = DataType::bfloat16}, bytes, "");
    ASSERT_TRUE(e) << e.error().message;
    ASSERT_GT(e->prediction.plans.size(), 3U);
    for (const PredictedPlan& plan : e->prediction.plans) {
      EXPECT_LE(bandwidths(e->operation, limit.ranks, plan.time.total_us).bus_gbps, limit.bus_gbps * 1.0001)
          << plan.algorithm << " " << plan.executor << " of " << bytes;
      for (const ResourceUse& use : plan.time.resources) EXPECT_LE(use.busy, 1.0001) << use.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Limits,
                         testing::Values(Limit{"10x-rtx3090", 10, 3 / 5.0 * 1.8},
                                         // Three islands behind a port: two bridged pairs, and one single GPU.
                                         Limit{"10x-rtx3090-bridged", 10, 3 / 3.0 * 1.8},
                                         Limit{"2-hosts-10x-rtx3090", 20, 3 / 5.0 * 1.9},
                                         Limit{"2-hosts-10x-rtx3090-bridged", 20, 3 / 3.0 * 1.9},
                                         Limit{"4x-h200", 4, 391}, Limit{"4x-h200-no-p2p", 4, 40 * 1.5},
                                         Limit{"4x-rtx-pro-6000", 4, 50}, Limit{"8x-h800", 8, 160},
                                         Limit{"32-hosts-8x-h800", 16, 210},  // NVLink and a NIC at once
                                         Limit{"8x-h100-superpod", 16, 420}, Limit{"nvl72", 36, 900}));

TEST(BuiltinMachines, TheRingThroughHostMemoryMovesWhatTheTextbookSays) {
  // Every GPU writes and reads 2 x 9/10 S; five share 3 GB/s each way.
  const auto e = explain({"10x-rtx3090", 10, false}, {}, static_cast<std::size_t>(s), "ring");
  ASSERT_TRUE(e) << e.error().message;
  const double bound_us = us(5 * 1.8 * s, 3);
  EXPECT_GE(e->prediction.choice().time.total_us, bound_us);
  EXPECT_LE(e->prediction.choice().time.total_us, 1.1 * bound_us);
}

TEST(BuiltinMachines, OnTenGpusTheChoiceIsWellAheadOfTheRing) {
  for (std::uint32_t ranks = 2; ranks <= 10; ++ranks) {
    const MachineOptions machine{"10x-rtx3090", ranks, false};
    const auto choice = explain(machine, {}, static_cast<std::size_t>(s), "");
    const auto ring = explain(machine, {}, static_cast<std::size_t>(s), "ring");
    ASSERT_TRUE(choice && ring);
    const auto gain = [&](const PredictedPlan& plan) {
      return ring->prediction.choice().time.total_us / plan.time.total_us;
    };
    const auto& plans = choice->prediction.plans;
    const auto by_cpus = std::find_if(plans.begin(), plans.end(),
                                      [](const PredictedPlan& plan) { return plan.executor == cpu_sums_executor; });
    ASSERT_NE(by_cpus, plans.end());
    // The gain computed by hand is 2 (n - 1) / n: 1 for two ranks, 1.8 for ten.
    EXPECT_GT(gain(*by_cpus), ranks == 2 ? 1 : 0.97 * 2 * (ranks - 1) / ranks) << ranks;
    // CPU threads add if their rates promise a gain of 1.5; these CPUs add much more than the links bring.
    EXPECT_EQ(by_cpus == plans.begin(), ranks >= 4) << ranks;
    EXPECT_GT(gain(plans.front()), 1) << ranks;
  }
}

}  // namespace
}  // namespace strait::sim
