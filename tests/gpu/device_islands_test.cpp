// Islands of GPUs, simulated by STRAIT_P2P where all GPUs reach one another. Calls over islands have the bits of the
// plan `hierarchical`, all others the bits that they have without islands; a missing rank ends the calls of all.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>

#include "gpu/device_checks.hpp"
#include "gpu/island_mail.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

struct IslandSetup {
  const char* name;
  bool as_processes;
  int ranks;
  const char* p2p;
  Islands islands;
};

class DeviceIslands : public ::testing::TestWithParam<IslandSetup> {
 protected:
  void SetUp() override {
    const int gpus = gpus_in_a_child();
    const int needed = GetParam().as_processes ? GetParam().ranks : 1;
    if (gpus < needed) GTEST_SKIP() << "needs " << needed << " GPUs, here are " << gpus;
  }

  static void run(const RankBody& body) {
    const IslandSetup& setup = GetParam();
    const auto all = [&] {
      setenv("STRAIT_P2P", setup.p2p, 1);
      if (!setup.as_processes) threads_to_meet = setup.ranks;
      // Streams that share a hardware queue wait for one another; where ranks share a GPU, that would deadlock.
      setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
      run_on_devices(setup.as_processes, setup.ranks, [&](straitComm_t comm, int rank, int ranks) {
        const char *transport = nullptr, *why = nullptr;
        STRAIT_EXPECT_OK(straitCommGetTransport(comm, &transport, &why));
        EXPECT_STREQ(transport, "islands") << why;
        body(comm, rank, ranks);
      });
    };
    EXPECT_EQ(wait_for(fork_rank(all), 400'000), 0);
  }
};

/// Returns the number of a rank's island.
auto island_of(int rank) {
  const Islands& islands = DeviceIslands::GetParam().islands;
  return std::find_if(islands.begin(), islands.end(),
                      [rank](const auto& island) {
                        return std::find(island.begin(), island.end(), static_cast<std::uint32_t>(rank)) !=
                               island.end();
                      }) -
         islands.begin();
}

TEST_P(DeviceIslands, AllShapes) {
  run([](straitComm_t comm, int rank, int ranks) { check_shapes(comm, rank, ranks, GetParam().islands); });
}
TEST_P(DeviceIslands, AllTypesAndOperations) {
  run([](straitComm_t comm, int rank, int ranks) { check_arithmetic(comm, rank, ranks, GetParam().islands); });
}
TEST_P(DeviceIslands, AllToAllV) { run(check_all_to_all_v); }
TEST_P(DeviceIslands, Messages) { run(check_messages); }

/// Messages within islands, across them, to itself, and all at once; two groups back to back, eagerly and as a graph.
TEST_P(DeviceIslands, MessagesOfEachKind) {
  run([](straitComm_t comm, int rank, int ranks) {
    check_mail_of_each_kind(comm, rank, ranks, [rank](int peer) { return island_of(rank) == island_of(peer); });
  });
}

/// A group on one stream that is posted while another stream is being captured runs at once.
TEST_P(DeviceIslands, MessagesBesideACapture) {
  run([](straitComm_t comm, int rank, int ranks) {
    DeviceSide side(16), other(16);
    Mail captured(comm, rank, ranks, side.stream()), eager(comm, rank, ranks, other.stream());
    meet_on_host();
    const auto is_any = [](int /*peer*/) { return true; };
    eager.prepare(Mail::Length::mixed, 1);
    captured.prepare(Mail::Length::mixed, 2);  // tells it the lengths of the captured messages
    const Graph graph(side.stream(), [&] {
      captured.post(is_any);
      eager.post(is_any);
      captured.post(is_any);
    });
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(other.stream()));
    eager.expect_received(is_any);
    for (int launch = 0; launch < 2; ++launch) {
      captured.prepare(Mail::Length::mixed, 2);
      graph.launch(side.stream());
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
      captured.expect_received(is_any);
    }
    meet_on_host();
  });
}

/// A circle of three ranks, two of them in one island. For the rank that posts a group, its messages within the island
/// depend on its messages outside, or the other way round, so neither part may wait for the other.
TEST_P(DeviceIslands, MessagesOfAGroupBesideOthersOneByOne) {
  run([](straitComm_t comm, int rank, int ranks) {
    const Islands& islands = GetParam().islands;
    const auto large = std::find_if(islands.begin(), islands.end(), [](const auto& all) { return all.size() > 1; });
    const auto a = static_cast<int>((*large)[0]), b = static_cast<int>((*large)[1]);
    const auto c = static_cast<int>((large == islands.begin() ? islands.back() : islands.front())[0]);
    check_circles(comm, rank, ranks, {{b, c, a}, {b, a, c}});
  });
}
TEST_P(DeviceIslands, Repeats) { run(check_repeats); }

/// Calls over islands and calls among all ranks, back to back on two streams and in graphs.
TEST_P(DeviceIslands, RingsTakeTurns) {
  run([](straitComm_t comm, int rank, int ranks) { check_turns(comm, rank, ranks, GetParam().islands); });
}

/// The islands' sums are sent in the wire format, and calls that only copy send encoded bytes over islands.
TEST_P(DeviceIslands, WireFormats) {
  run([](straitComm_t comm, int rank, int ranks) {
    DeviceSide side(std::size_t{32} << 20);
    std::uint64_t seed = 1;
    for (const WireFormat wire : {WireFormat::int8, WireFormat::fp8, WireFormat::int4})
      for (const Collective collective :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::all_to_all})
        for (const std::size_t count : {std::size_t{100}, std::size_t{16'385}, std::size_t{1'000'003}}) {
          CollectiveCase c;
          c.collective = collective;
          c.type = std::array{DataType::float32, DataType::bfloat16, DataType::float16}[seed % 3];
          if (is_reduction(collective))
            c.op = std::array{ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}[seed / 2 % 3];
          c.count = count;
          c.wire = wire;
          c.islands = GetParam().islands;
          c.in_place = seed % 2 == 0;
          c.misalignment_bytes = seed % 5 == 0 ? size_bytes(c.type) : 0;
          c.seed = ++seed;
          side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c,
                     seed > 3 && seed % 4 == 0 ? Mode::graph : Mode::eager);
        }
  });
}

/// The last rank does not make the call: the others wait for it or for ranks that do, until the first rank aborts.
template <class Call>
void abort_during(straitComm_t comm, int rank, int ranks, Call&& call) {
  cudaStream_t stream = nullptr;
  std::byte* data = nullptr;
  STRAIT_EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  STRAIT_EXPECT_CUDA(cudaMalloc(&data, std::size_t{8} << 20));
  meet_on_host();
  std::jthread aborter;
  if (rank == 0)
    aborter = std::jthread([comm] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      STRAIT_EXPECT_OK(straitCommAbort(comm));
    });
  if (rank != ranks - 1) {
    const straitResult_t called = call(data, stream);
    EXPECT_TRUE(called == straitSuccess || called == straitAborted) << straitGetLastError(comm);
  }
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream));
  straitResult_t error = straitSuccess;
  for (int tries = 0; tries < 5000 && error == straitSuccess; ++tries) {
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(error, straitAborted);
  EXPECT_THAT(straitGetLastError(comm), HasSubstr("rank 0"));
  cudaFree(data);
  cudaStreamDestroy(stream);
}
TEST_P(DeviceIslands, AnAbortEndsTheKernelsThatWait) {
  run([](straitComm_t comm, int rank, int ranks) {
    abort_during(comm, rank, ranks, [&](std::byte* data, cudaStream_t stream) {
      return straitAllReduce(data, data, 1 << 20, straitFloat32, straitSum, comm, stream);
    });
  });
}
TEST_P(DeviceIslands, AnAbortEndsExchanges) {
  run([](straitComm_t comm, int rank, int ranks) {
    abort_during(comm, rank, ranks, [&](std::byte* data, cudaStream_t stream) {
      return straitAllToAll(data, data, 1 << 20, straitUint8, comm, stream);
    });
  });
}
/// Messages within an island and across.
TEST_P(DeviceIslands, AnAbortEndsMessages) {
  run([](straitComm_t comm, int rank, int ranks) {
    abort_during(comm, rank, ranks, [&](std::byte* data, cudaStream_t stream) {
      constexpr std::size_t bytes = std::size_t{4} << 20;
      STRAIT_EXPECT_OK(straitGroupStart());
      for (int peer = 0; peer < ranks; ++peer) {
        STRAIT_EXPECT_OK(straitSend(data, bytes, straitUint8, peer, comm, stream));
        STRAIT_EXPECT_OK(straitRecv(data + bytes, bytes, straitUint8, peer, comm, stream));
      }
      return straitGroupEnd();
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeviceIslands,
                         ::testing::Values(IslandSetup{"Pairs", false, 4, "0-1,2-3", {{0, 1}, {2, 3}}},
                                           IslandSetup{"CrossedPairs", false, 4, "0-3,1-2", {{0, 3}, {1, 2}}},
                                           IslandSetup{"PairsOverPcie", false, 4, "pcie,0-1,2-3", {{0, 1}, {2, 3}}},
                                           IslandSetup{"APairAndOne", false, 3, "0-1", {{0, 1}, {2}}},
                                           IslandSetup{"AllSizes", false, 6, "0-1-2,3-4", {{0, 1, 2}, {3, 4}, {5}}},
                                           IslandSetup{"ThreePairs", false, 6, "0-1,2-3,4-5", {{0, 1}, {2, 3}, {4, 5}}},
                                           IslandSetup{"PairsOfProcesses", true, 4, "0-1,2-3", {{0, 1}, {2, 3}}}),
                         [](const auto& test) { return std::string(test.param.name); });

/// A setting that names a rank that does not exist is refused by all ranks, with the setting in the message.
TEST(DeviceIslandsSetting, RanksMustExist) {
  if (gpus_in_a_child() == 0) GTEST_SKIP() << "no GPU here";
  const auto refused = [] {
    setenv("STRAIT_P2P", "0-1,2-3", 1);
    straitUniqueId id;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        straitConfig_t config = test_config();
        config.device = rank % gpu_count();
        straitComm_t comm = nullptr;
        EXPECT_NE(straitCommInitRank(&comm, 3, &id, rank, &config), straitSuccess);
        EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("names rank 3"));
      });
  };
  EXPECT_EQ(wait_for(fork_rank(refused), 60'000), 0);
}

}  // namespace
}  // namespace strait::testing
