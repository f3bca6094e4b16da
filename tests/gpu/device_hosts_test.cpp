// GPU ranks of several hosts, simulated on one by STRAIT_HOSTID: results have the bits of the plan `hierarchical`, and
// a failure anywhere ends the calls of all ranks.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "base/deadline.hpp"
#include "gpu/device_checks.hpp"
#include "gpu/island_mail.hpp"
#include "gpu/residual_check.hpp"
#include "support/shared_count.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

struct HostsSetup {
  const char* name;
  int ranks;
  Islands hosts;
  const char* p2p = "auto";
};

class DeviceHosts : public ::testing::TestWithParam<HostsSetup> {
 protected:
  void SetUp() override {
    if (gpus_in_a_child() == 0) GTEST_SKIP() << "no GPU here";
  }

  static int host_of(int rank) {
    const Islands& hosts = GetParam().hosts;
    const auto has_rank = [rank](const auto& host) {
      return std::find(host.begin(), host.end(), static_cast<std::uint32_t>(rank)) != host.end();
    };
    return static_cast<int>(std::find_if(hosts.begin(), hosts.end(), has_rank) - hosts.begin());
  }

  /// Runs `body` on all ranks, each a process. `killed`: a rank that is expected to be killed.
  static void run(const RankBody& body, int killed = -1) {
    LateId id;
    std::vector<pid_t> children;
    for (int rank = 0; rank < GetParam().ranks; ++rank)
      children.push_back(fork_rank([&, rank] {
        setenv("STRAIT_HOSTID", ("host" + std::to_string(host_of(rank))).c_str(), 1);
        setenv("STRAIT_SHARE_GPUS", "1", 1);
        setenv("STRAIT_P2P", GetParam().p2p, 1);
        join_on_device(id.await(), rank, GetParam().ranks, [&](straitComm_t comm, int own, int ranks) {
          const char *transport = nullptr, *why = nullptr;
          STRAIT_EXPECT_OK(straitCommGetTransport(comm, &transport, &why));
          EXPECT_THAT(transport, HasSubstr("+tcp")) << why;
          body(comm, own, ranks);
        });
      }));
    id.make();
    for (int rank = 0; rank < GetParam().ranks; ++rank) {
      const int status = wait_for(children[static_cast<std::size_t>(rank)], 300'000);
      if (rank == killed)
        EXPECT_TRUE(WIFSIGNALED(status)) << "rank " << rank;
      else
        EXPECT_EQ(status, 0) << "rank " << rank;
    }
  }
};

TEST_P(DeviceHosts, AllShapes) {
  run([](straitComm_t comm, int rank, int ranks) { check_shapes(comm, rank, ranks, GetParam().hosts); });
}
TEST_P(DeviceHosts, AllTypesAndOperations) {
  run([](straitComm_t comm, int rank, int ranks) { check_arithmetic(comm, rank, ranks, GetParam().hosts); });
}
TEST_P(DeviceHosts, AllToAllV) { run(check_all_to_all_v); }
TEST_P(DeviceHosts, Messages) { run(check_messages); }
TEST_P(DeviceHosts, Repeats) { run(check_repeats); }

/// Messages within hosts, between them, to itself, and all at once; two groups back to back, eagerly and as a graph.
TEST_P(DeviceHosts, MessagesOfEachKind) {
  run([](straitComm_t comm, int rank, int ranks) {
    check_mail_of_each_kind(comm, rank, ranks, [rank](int peer) { return host_of(rank) == host_of(peer); });
  });
}

/// Circles of three ranks, of at least two hosts.
TEST_P(DeviceHosts, MessagesOfAGroupBesideOthersOneByOne) {
  if (GetParam().ranks < 3) GTEST_SKIP() << "a circle has three";
  run([](straitComm_t comm, int rank, int ranks) {
    check_circles(comm, rank, ranks, {{0, 1, 2}, {1, 0, 2}, {2, 1, 0}});
  });
}
TEST_P(DeviceHosts, CallsTakeTurns) {
  run([](straitComm_t comm, int rank, int ranks) { check_turns(comm, rank, ranks, GetParam().hosts); });
}

/// The hosts' sums are sent in the wire format.
TEST_P(DeviceHosts, WireFormats) {
  run([](straitComm_t comm, int rank, int ranks) {
    const Islands& hosts = GetParam().hosts;
    const bool alike = std::all_of(hosts.begin(), hosts.end(), [&](auto& h) { return h.size() == hosts[0].size(); });
    DeviceSide side(std::size_t{16} << 20);
    std::uint64_t seed = 1;
    for (const WireFormat wire : {WireFormat::int8, WireFormat::fp8, WireFormat::int4})
      for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter})
        for (const std::size_t count : {std::size_t{100}, std::size_t{16'385}, std::size_t{1'000'003}}) {
          if (collective == Collective::reduce_scatter && (!alike || count > 100'000)) continue;
          CollectiveCase c;
          c.collective = collective;
          c.type = std::array{DataType::float32, DataType::bfloat16, DataType::float16}[seed % 3];
          c.op = std::array{ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}[seed / 2 % 3];
          c.count = count;
          c.wire = wire;
          c.islands = hosts;
          c.seed = ++seed;
          side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c,
                     seed % 4 == 0 ? Mode::graph : Mode::eager);
        }
  });
}

TEST_P(DeviceHosts, LeavesWhatAFormatLost) {
  const Islands& hosts = GetParam().hosts;
  if (static_cast<int>(hosts.size()) < GetParam().ranks) GTEST_SKIP() << "what crosses are sums of hosts";
  run([](straitComm_t comm, int rank, int ranks) {
    for (const std::size_t count : {std::size_t{9001}, std::size_t{3'000'001}})
      check_residual(comm, rank, ranks, count);
  });
}

/// Returns the error that the communicator reports within two seconds, for a call that the last rank does not make.
straitResult_t error_of(straitComm_t comm) {
  straitResult_t error = straitSuccess;
  for (int tries = 0; tries < 2000 && error == straitSuccess; ++tries) {
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return error;
}

TEST_P(DeviceHosts, AnAbortEndsWhatWaits) {
  run([](straitComm_t comm, int rank, int ranks) {
    DeviceSide side(std::size_t{8} << 20);
    std::jthread aborter;
    if (rank == 0)
      aborter = std::jthread([comm] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        STRAIT_EXPECT_OK(straitCommAbort(comm));
      });
    if (rank != ranks - 1) {
      const straitResult_t called =
          straitAllReduce(side.send(), side.receive(), 1 << 20, straitFloat32, straitSum, comm, side.stream());
      EXPECT_TRUE(called == straitSuccess || called == straitAborted) << straitGetLastError(comm);
    }
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
    EXPECT_EQ(error_of(comm), straitAborted);
    EXPECT_THAT(straitGetLastError(comm), HasSubstr("rank 0"));
  });
}

/// The ranks without the dead one add up a one each.
void go_on_without(int dead, straitComm_t comm, int ranks, const DeviceSide& side) {
  straitComm_t smaller = nullptr;
  STRAIT_EXPECT_OK(straitCommShrink(comm, &dead, 1, &smaller, nullptr));
  if (smaller == nullptr) return;
  std::vector<std::int32_t> values(100'000, 1);
  const std::size_t bytes = values.size() * sizeof values[0];
  STRAIT_EXPECT_CUDA(cudaMemcpyAsync(side.send(), values.data(), bytes, cudaMemcpyDefault, side.stream()));
  STRAIT_EXPECT_OK(
      straitAllReduce(side.send(), side.send(), values.size(), straitInt32, straitSum, smaller, side.stream()));
  STRAIT_EXPECT_CUDA(cudaMemcpyAsync(values.data(), side.send(), bytes, cudaMemcpyDefault, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  EXPECT_EQ(std::count(values.begin(), values.end(), ranks - 1), 100'000);
  STRAIT_EXPECT_OK(straitCommDestroy(smaller));
}

TEST_P(DeviceHosts, AKilledRankIsNamedAndTheOthersGoOn) {
  const int killed = GetParam().ranks - 1;
  run(
      [killed](straitComm_t comm, int rank, int ranks) {
        DeviceSide side(std::size_t{8} << 20);
        const auto all_reduce = [&] {
          return straitAllReduce(side.send(), side.receive(), 1 << 20, straitFloat32, straitSum, comm, side.stream());
        };
        for (int call = 0; call < 5; ++call) STRAIT_EXPECT_OK(all_reduce());
        STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
        if (rank == killed) kill(getpid(), SIGKILL);
        const auto began = std::chrono::steady_clock::now();
        (void)all_reduce();
        STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
        EXPECT_EQ(error_of(comm), straitRemoteError);
        EXPECT_THAT(straitGetLastError(comm), HasSubstr("rank " + std::to_string(killed)));
        EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
        go_on_without(killed, comm, ranks, side);
      },
      killed);
}

/// A GPU fails as if by the program's own faulty kernel.
TEST_P(DeviceHosts, AFailedGpuIsNamed) {
  run([](straitComm_t comm, int rank, int ranks) {
    auto* const side = new DeviceSide(std::size_t{1} << 20);  // not freed on the failed rank: CUDA cannot
    const bool fails = rank == ranks - 1;
    std::byte* const data = side->send() + (fails ? std::size_t{1} << 42 : 0);
    const auto began = std::chrono::steady_clock::now();
    STRAIT_EXPECT_OK(straitAllReduce(data, data, 1000, straitInt32, straitSum, comm, side->stream()));
    EXPECT_EQ(error_of(comm), straitCudaError) << straitGetLastError(comm);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3));
    const std::string name = "of rank " + std::to_string(ranks - 1);
    EXPECT_THAT(straitGetLastError(comm), ::testing::AllOf(HasSubstr(name), HasSubstr("has failed")));
    if (!fails) return delete side;
    (void)straitCommDestroy(comm);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
    _exit(HasFailure() ? 1 : 0);
  });
}

TEST_P(DeviceHosts, OtherCallsAreTold) {
  run([](straitComm_t comm, int rank, int ranks) {
    DeviceSide side(std::size_t{8} << 20);
    if (rank == ranks - 1)
      (void)straitAllReduce(side.send(), side.receive(), 1000, straitFloat32, straitSum, comm, side.stream());
    else
      (void)straitAllReduce(side.send(), side.receive(), 2000, straitFloat32, straitSum, comm, side.stream());
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
    EXPECT_EQ(error_of(comm), straitMismatch) << straitGetLastError(comm);
  });
}

/// A rank that only sends (a root or a sender) finishes on its stream before the others begin, and the communicator
/// counts as done; straitCommSynchronize() still waits until the data has been sent.
TEST_P(DeviceHosts, WhatIsOnlySentIsNotAwaited) {
  if (GetParam().ranks > 2) GTEST_SKIP() << "ranks of one host wait for one another";
  SharedCount through;
  run([&](straitComm_t comm, int rank, int /*ranks*/) {
    constexpr std::size_t bytes = 100'003, calls = 3;
    DeviceSide side(std::size_t{1} << 20);
    Bytes data(bytes);
    const auto give = [&](std::size_t seed) {
      data = rank == 0 ? random_elements(DataType::uint8, bytes, seed) : Bytes(bytes, std::byte{poison});
      STRAIT_EXPECT_CUDA(cudaMemcpy(side.send(), data.data(), bytes, cudaMemcpyDefault));
    };
    const auto await = [&](int parts) {
      const auto end = Deadline::after_ms(60'000);
      while (through.value < parts && !end.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_FALSE(end.expired()) << "part " << parts;
    };
    const auto verify = [&](std::size_t seed) {
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
      STRAIT_EXPECT_CUDA(cudaMemcpy(data.data(), side.send(), bytes, cudaMemcpyDefault));
      EXPECT_TRUE(data == random_elements(DataType::uint8, bytes, seed)) << seed;
    };
    if (rank == 1) await(1);
    for (std::size_t i = 0; i < calls; ++i) {
      give(i);
      STRAIT_EXPECT_OK(straitBroadcast(side.send(), side.send(), bytes, straitUint8, 0, comm, side.stream()));
      verify(i);
    }
    int done = 0;
    STRAIT_EXPECT_OK(straitCommQuery(comm, &done));
    EXPECT_EQ(done, 1) << "what is on its way still is none of the GPU's business";
    if (rank == 0) through.value = 1;
    STRAIT_EXPECT_OK(straitCommSynchronize(comm));
    if (rank == 1) await(2);
    give(calls);
    if (rank == 0) {
      STRAIT_EXPECT_OK(straitSend(side.send(), bytes, straitUint8, 1, comm, side.stream()));
      verify(calls);
      through.value = 2;
      STRAIT_EXPECT_OK(straitCommSynchronize(comm));
    } else {
      STRAIT_EXPECT_OK(straitRecv(side.send(), bytes, straitUint8, 0, comm, side.stream()));
      verify(calls);
    }
  });
}

/// Splits a communicator into parts whose ranks are on one host or on several.
TEST_P(DeviceHosts, PartsAreCommunicators) {
  run([](straitComm_t comm, int rank, int /*ranks*/) {
    DeviceSide side(std::size_t{1} << 20);
    for (const int color : {rank % 2, host_of(rank)}) {
      straitComm_t part = nullptr;
      STRAIT_EXPECT_OK(straitCommSplit(comm, color, rank, &part, nullptr));
      int size = 0;
      STRAIT_EXPECT_OK(straitCommCount(part, &size));
      std::vector<std::int32_t> values(5000, 1);
      STRAIT_EXPECT_CUDA(cudaMemcpyAsync(side.send(), values.data(), 20'000, cudaMemcpyDefault, side.stream()));
      STRAIT_EXPECT_OK(straitAllReduce(side.send(), side.send(), 5000, straitInt32, straitSum, part, side.stream()));
      STRAIT_EXPECT_CUDA(cudaMemcpyAsync(values.data(), side.send(), 20'000, cudaMemcpyDefault, side.stream()));
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
      EXPECT_EQ(std::count(values.begin(), values.end(), size), 5000);
      STRAIT_EXPECT_OK(straitCommDestroy(part));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeviceHosts,
                         ::testing::Values(HostsSetup{"TwoOfOne", 2, {{0}, {1}}},
                                           HostsSetup{"TwoOfTwo", 4, {{0, 1}, {2, 3}}},
                                           HostsSetup{"Crossed", 4, {{0, 2}, {1, 3}}, "off"},
                                           HostsSetup{"Nested", 4, {{0, 3}, {1, 2}}},
                                           HostsSetup{"Unlike", 4, {{0, 1}, {2}, {3}}}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace strait::testing
