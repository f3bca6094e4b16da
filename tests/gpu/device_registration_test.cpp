// Registered memory of GPU ranks, to which peers write directly, through the public interface.
#include <gmock/gmock.h>

#include <optional>

#include "gpu/registration.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

constexpr auto no_sms = static_cast<std::uint32_t>(STRAIT_NO_SMS);

void check_case(DeviceSide& side, straitComm_t comm, int rank, int ranks, const CollectiveCase& c, Mode mode) {
  side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, mode);
}

/// Returns whether calls can write to registered outputs directly. They do not where ranks share GPUs or exchange data
/// through host memory.
bool goes_in_place(straitComm_t comm, int ranks) {
  const char* transport = nullptr;
  STRAIT_EXPECT_OK(straitCommGetTransport(comm, &transport, nullptr));
  return ranks > 1 && ranks <= gpu_count() && std::string(transport) == "cuda_p2p";
}

class DeviceRegistration : public DeviceRanks {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceRegistration,
                         ::testing::Values(Setup{false, 1}, Setup{false, 2}, Setup{true, 2}, Setup{false, 4},
                                           Setup{true, 4}),
                         name_of);

/// Checks calls of many shapes. Those that write to outputs directly must leave no kernel in a graph. Long broadcasts
/// are passed on in several chunks.
void check_shapes(straitComm_t comm, int rank, int ranks, const std::vector<Collective>& collectives,
                  std::uint32_t max_sms) {
  DeviceSide side((std::size_t{4} << 20) * static_cast<std::size_t>(ranks), true);
  const Registration send(comm, side.send(), side.bytes()), receive(comm, side.receive(), side.bytes());
  std::uint64_t seed = 1;
  for (const Collective collective : collectives)
    for (const std::size_t count : {1u, 7u, 1000u, 70'001u, 1'000'000u})
      for (const bool in_place : {false, true})
        for (const Mode mode : {Mode::eager, Mode::graph}) {
          CollectiveCase c;
          c.collective = collective;
          c.type = seed % 3 == 0 ? DataType::bfloat16 : DataType::float32;
          c.count = collective == Collective::broadcast ? count * static_cast<std::size_t>(ranks) - 1 : count;
          c.root = static_cast<std::uint32_t>(seed % static_cast<std::uint64_t>(ranks));
          c.in_place = in_place;
          c.misalignment_bytes = seed % 4 == 0 ? size_bytes(c.type) : 0;
          c.max_sms = max_sms;
          c.seed = ++seed;
          check_case(side, comm, rank, ranks, c, mode);
          const bool has_outputs_alike = collective == Collective::all_gather || collective == Collective::all_to_all ||
                                         collective == Collective::broadcast;
          if (mode == Mode::graph && has_outputs_alike && c.count != 0 && goes_in_place(comm, ranks)) {
            EXPECT_EQ(side.kernels_in_graph(), 0) << describe(c);
          }
        }
}

/// Small calls use copy engines too. Collectives that cannot write directly work as always. Data that in-place
/// calls overwrite is saved in windows first.
TEST_P(DeviceRegistration, AllShapes) {
  setenv("STRAIT_COPY_ENGINE_BYTES", "1", 1);
  run([](straitComm_t comm, int rank, int ranks) {
    check_shapes(comm, rank, ranks,
                 {Collective::all_gather, Collective::all_to_all, Collective::broadcast, Collective::all_reduce,
                  Collective::gather, Collective::scatter},
                 0);
  });
  unsetenv("STRAIT_COPY_ENGINE_BYTES");
}

/// The communicator has no windows; the options of the calls ask for copy engines.
TEST_P(DeviceRegistration, AllShapesWithoutWindows) {
  run([](straitComm_t comm, int rank, int ranks) {
    check_shapes(comm, rank, ranks, {Collective::all_gather, Collective::broadcast}, no_sms);
  });
}

/// With a limit of few SMs calls use copy engines, without a limit a kernel; and a kernel again once the registration
/// is undone.
TEST_P(DeviceRegistration, LargeCalls) {
  run([](straitComm_t comm, int rank, int ranks) {
    DeviceSide side(std::size_t{70} << 20, true);
    CollectiveCase c;
    c.type = DataType::float32;
    c.count = (std::size_t{68} << 20) / 4 / static_cast<std::size_t>(ranks);
    {
      const Registration receive(comm, side.receive(), side.bytes());
      for (const std::uint32_t max_sms : {0u, 4u}) {
        c.max_sms = max_sms;
        for (const Collective collective : {Collective::all_gather, Collective::all_to_all, Collective::broadcast,
                                            Collective::gather, Collective::scatter}) {
          const bool has_outputs_alike = collective != Collective::gather && collective != Collective::scatter;
          CollectiveCase each = c;
          each.collective = collective;
          if (collective == Collective::broadcast) each.count *= static_cast<std::size_t>(ranks);
          check_case(side, comm, rank, ranks, each, Mode::graph);
          // Processes that share a GPU have so few blocks that copy engines do large calls anyway.
          if (ranks <= gpu_count()) {
            EXPECT_EQ(side.kernels_in_graph() == 0, max_sms != 0 && has_outputs_alike && goes_in_place(comm, ranks))
                << describe(each);
          }
          check_case(side, comm, rank, ranks, each, Mode::eager);
        }
      }
    }
    c.collective = Collective::all_to_all;
    check_case(side, comm, rank, ranks, c, Mode::graph);
    if (ranks <= gpu_count()) {
      EXPECT_NE(side.kernels_in_graph(), 0);
    }
  });
}

/// Several registrations at a time, whose lengths differ from rank to rank; then they are undone and replaced by
/// others.
TEST_P(DeviceRegistration, ComeAndGo) {
  setenv("STRAIT_COPY_ENGINE_BYTES", "1", 1);
  run([](straitComm_t comm, int rank, int ranks) {
    const auto own = static_cast<std::size_t>(rank);
    for (std::uint64_t turn = 1; turn <= 4; ++turn) {
      DeviceSide one((std::size_t{1} << 20) + own * 300'000, true), other((std::size_t{3} << 20) - own * 100'000, true);
      const Registration first(comm, one.receive(), one.bytes());
      const Registration second(comm, other.receive(), other.bytes());
      for (DeviceSide* side : {&one, &other}) {
        CollectiveCase c;
        c.collective = Collective::all_gather;
        c.type = DataType::uint8;
        c.count = 100'000;
        c.seed = turn;
        check_case(*side, comm, rank, ranks, c, turn % 2 == 0 ? Mode::graph : Mode::eager);
      }
    }
  });
  unsetenv("STRAIT_COPY_ENGINE_BYTES");
}

/// On rank 0 the output lies in both registrations, on the others in only one: ranks could not agree which one is
/// meant.
TEST_P(DeviceRegistration, OverlapsOnOneRankAlone) {
  setenv("STRAIT_COPY_ENGINE_BYTES", "1", 1);
  run([](straitComm_t comm, int rank, int ranks) {
    DeviceSide one(1 << 20, true), other(1 << 20, true);
    DeviceSide& used = rank == 0 ? one : other;
    const Registration first(comm, one.receive(), one.bytes()), second(comm, used.receive(), used.bytes());
    CollectiveCase c;
    c.collective = Collective::all_gather;
    c.type = DataType::uint8;
    c.count = 100'000;
    for (const Mode mode : {Mode::eager, Mode::graph}) check_case(used, comm, rank, ranks, c, mode);
  });
  unsetenv("STRAIT_COPY_ENGINE_BYTES");
}

/// The same memory is registered twice, and ranks undo different ones of the two registrations.
TEST_P(DeviceRegistration, TheSameMemoryTwice) {
  setenv("STRAIT_COPY_ENGINE_BYTES", "1", 1);
  run([](straitComm_t comm, int rank, int ranks) {
    DeviceSide side(1 << 20, true);
    std::optional<Registration> registrations[2];
    for (auto& each : registrations) each.emplace(comm, side.receive(), side.bytes());
    CollectiveCase c;
    c.collective = Collective::all_gather;
    c.type = DataType::uint8;
    c.count = 100'000;
    check_case(side, comm, rank, ranks, c, Mode::eager);
    registrations[rank % 2].reset();
    check_case(side, comm, rank, ranks, c, Mode::graph);
    if (goes_in_place(comm, ranks)) {
      EXPECT_EQ(side.kernels_in_graph(), 0);
    }
  });
  unsetenv("STRAIT_COPY_ENGINE_BYTES");
}

TEST_P(DeviceRegistration, OtherMemoryIsRefusedOnAllRanks) {
  run([](straitComm_t comm, int rank, int ranks) {
    if (!goes_in_place(comm, ranks)) return;
    const bool shared = rank != ranks - 1;
    std::byte* const memory = DeviceSide::allocate(1 << 20, shared);
    void* handle = nullptr;
    EXPECT_NE(straitCommRegister(comm, memory, 1 << 20, &handle), straitSuccess);
    const std::string why = straitGetLastError(nullptr);
    EXPECT_THAT(why, HasSubstr("straitMemAllocDevice"));
    EXPECT_THAT(why, shared ? HasSubstr("rank " + std::to_string(ranks - 1)) : HasSubstr("virtual memory"));
    DeviceSide side(1 << 20);
    CollectiveCase c;
    c.collective = Collective::all_gather;
    c.count = 1000;
    check_case(side, comm, rank, ranks, c, Mode::eager);
    DeviceSide::release(memory, shared);
  });
}

/// Memory that is freed while registered must be noticed: its addresses may belong to other memory by now.
TEST_P(DeviceRegistration, FreedMemoryIsNoticed) {
  setenv("STRAIT_COPY_ENGINE_BYTES", "1", 1);
  run([](straitComm_t comm, int /*rank*/, int ranks) {
    if (!goes_in_place(comm, ranks)) return;
    constexpr std::size_t bytes = std::size_t{8} << 20;
    std::byte* const memory = DeviceSide::allocate(bytes, true);
    const Registration registration(comm, memory, bytes);
    DeviceSide::release(memory, true);
    std::byte* const again = DeviceSide::allocate(bytes, true);
    if (again == memory) {
      EXPECT_EQ(straitAllGather(again + bytes / 2, again, 1000, straitInt8, comm, nullptr), straitInvalidUsage);
      EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("freed"));
    }
    DeviceSide::release(again, true);
  });
  unsetenv("STRAIT_COPY_ENGINE_BYTES");
}

/// Outputs at different offsets would be written at the wrong places: nothing may be written, and all ranks get an
/// error.
TEST_P(DeviceRegistration, OutputsAtOtherPlacesDoNotMeet) {
  setenv("STRAIT_COPY_ENGINE_BYTES", "1", 1);
  run([](straitComm_t all, int rank, int ranks) {
    if (!goes_in_place(all, ranks)) return;
    straitConfig_t config = test_config();
    config.device = rank;
    config.timeout_ms = 1500;
    straitComm_t comm = nullptr;
    STRAIT_EXPECT_OK(straitCommSplit(all, 0, rank, &comm, &config));
    DeviceSide side(1 << 20, true);
    void* handle = nullptr;  // undone with the communicator
    STRAIT_EXPECT_OK(straitCommRegister(comm, side.receive(), side.bytes(), &handle));
    STRAIT_EXPECT_CUDA(cudaMemsetAsync(side.receive(), poison, side.bytes(), side.stream()));
    (void)straitAllGather(side.send(), side.receive() + (rank == 0 ? 0 : 256), 1000, straitInt8, comm, side.stream());
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
    straitResult_t error = straitSuccess;
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
    EXPECT_NE(error, straitSuccess);
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  unsetenv("STRAIT_COPY_ENGINE_BYTES");
}

/// Long in-place exchanges: many chunks are saved before a peer overwrites them, and reuse all scratch slots
/// repeatedly.
TEST_P(DeviceRegistration, LongExchangesInPlace) {
  setenv("STRAIT_COPY_ENGINE_BYTES", "1", 1);
  run([](straitComm_t comm, int rank, int ranks) {
    const std::size_t block_bytes = (std::size_t{72} << 20) / static_cast<std::size_t>(ranks) - 4;
    DeviceSide side(block_bytes * static_cast<std::size_t>(ranks), true);
    const Registration registration(comm, side.send(), side.bytes());
    CollectiveCase c;
    c.collective = Collective::all_to_all;
    c.type = DataType::uint8;
    c.count = block_bytes;
    c.in_place = true;
    for (const Mode mode : {Mode::eager, Mode::graph, Mode::eager}) {
      ++c.seed;
      check_case(side, comm, rank, ranks, c, mode);
    }
  });
  unsetenv("STRAIT_COPY_ENGINE_BYTES");
}

/// Programs that drive several GPUs expect this of memory from NCCL.
TEST_P(DeviceRegistration, MemoryIsReachedByOtherGpusOfTheProcess) {
  run([](straitComm_t /*comm*/, int rank, int /*ranks*/) {
    if (rank != 0) return;
    constexpr std::size_t bytes = 4096;
    int own = 0;
    STRAIT_EXPECT_CUDA(cudaGetDevice(&own));
    void* memory = nullptr;
    STRAIT_EXPECT_OK(straitMemAllocDevice(&memory, bytes, own));
    for (int other = 0; other < gpu_count(); ++other) {
      int reaches = 0;
      if (other == own) continue;
      STRAIT_EXPECT_CUDA(cudaDeviceCanAccessPeer(&reaches, other, own));
      if (reaches == 0) continue;
      STRAIT_EXPECT_CUDA(cudaSetDevice(other));
      STRAIT_EXPECT_CUDA(cudaMemset(memory, 1 + other, bytes));
      STRAIT_EXPECT_CUDA(cudaDeviceSynchronize());
      STRAIT_EXPECT_CUDA(cudaSetDevice(own));
      Bytes there(bytes, std::byte{});
      STRAIT_EXPECT_CUDA(cudaMemcpy(there.data(), memory, bytes, cudaMemcpyDeviceToHost));
      EXPECT_EQ(there, Bytes(bytes, std::byte(1 + other)));
    }
    STRAIT_EXPECT_OK(straitMemFree(memory));
  });
}

}  // namespace
}  // namespace strait::testing
