// Bad arguments to every function: the right code, a message that names the argument, and the communicator still works.
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <limits>

#include "api/values.hpp"
#include "support/freed_memory.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

#define EXPECT_REFUSED(call, word)                                      \
  do {                                                                  \
    EXPECT_EQ((call), straitInvalidArgument) << #call;                  \
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr(word)) << #call; \
  } while (false)

constexpr auto no_type = static_cast<straitDataType_t>(12);
constexpr auto no_op = static_cast<straitRedOp_t>(77);

TEST(NullArguments, OutsideACommunicator) {
  EXPECT_REFUSED(straitGetVersion(nullptr), "NULL");
  EXPECT_REFUSED(straitMemAlloc(nullptr, 16), "NULL");
  const char* value = nullptr;
  EXPECT_REFUSED(straitGetSetting(nullptr, &value), "NULL");
  EXPECT_REFUSED(straitGetSetting("STRAIT_DEBUG", nullptr), "NULL");
  EXPECT_REFUSED(straitGetSetting("STRAIT_NONSENSE", &value), "STRAIT_NONSENSE");
  EXPECT_REFUSED(straitSetDefault("STRAIT_DEBUG", nullptr), "NULL");
  EXPECT_REFUSED(straitSetDefault("STRAIT_NONSENSE", "1"), "STRAIT_NONSENSE");
  EXPECT_REFUSED(straitSetDefault("STRAIT_DEBUG", "loud"), "STRAIT_DEBUG=\"loud\"");
  EXPECT_REFUSED(straitGetUniqueId(nullptr), "NULL");
  EXPECT_NE(straitGetLastError(nullptr), nullptr);
  STRAIT_EXPECT_OK(straitCommDestroy(nullptr));
}

/// Applies to every variable in the table, also to those that are read later or that a host rank does not use.
TEST(Settings, ThatAreNotAcceptedAreRefusedAtInit) {
  for (const auto& [name, value] :
       {std::pair("STRAIT_SLICE_BYTES", "65544"), std::pair("STRAIT_DEBUG", "loud"),
        std::pair("STRAIT_NCCL_VERSION", "3"), std::pair("STRAIT_EXCHANGE_GBPS", "0"),
        std::pair("STRAIT_EXCHANGE_GBPS", "12GB"), std::pair("STRAIT_EXCHANGE_GBPS", "-1"),
        std::pair("STRAIT_CPU_REDUCER_CORES", "3-1"), std::pair("STRAIT_CPU_REDUCER_CORES", "1024"),
        std::pair("STRAIT_CPU_REDUCER_CORES", "1,"), std::pair("STRAIT_CPU_REDUCER_CORES", "1;2"),
        std::pair("STRAIT_CPU_REDUCER_CORES", "1-"), std::pair("STRAIT_CPU_REDUCER_CORES", "-1")}) {
    straitUniqueId id;
    straitComm_t comm = nullptr;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    setenv(name, value, 1);
    EXPECT_REFUSED(straitCommInitRank(&comm, 1, &id, 0, nullptr), name);
    unsetenv(name);
  }
}

/// Destructors of a program's static objects may call the library, after thread_local objects have been destroyed.
TEST(NullArguments, AtTheEndOfTheProcess) {
  const auto end = [] {
    const char* value = nullptr;
    EXPECT_REFUSED(straitGetSetting(nullptr, &value), "NULL");
    std::atexit([] {
      if (!fails_and_writes_nowhere([] { return straitCommCount(nullptr, nullptr) != straitSuccess; })) _exit(1);
      if (std::string(straitGetLastError(nullptr)).find("NULL") == std::string::npos) _exit(2);
    });
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "");
}

TEST(NullArguments, NoCommunicator) {
  int value = 0;
  std::size_t size = 0;
  void* handle = nullptr;
  straitComm_t part = nullptr;
  straitResult_t error;
  straitRedOp_t op;
  EXPECT_REFUSED(straitCommAbort(nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitCommGetAsyncError(nullptr, &error), "communicator is NULL");
  EXPECT_REFUSED(straitCommCount(nullptr, &value), "communicator is NULL");
  EXPECT_REFUSED(straitCommUserRank(nullptr, &value), "communicator is NULL");
  EXPECT_REFUSED(straitCommDevice(nullptr, &value), "communicator is NULL");
  EXPECT_REFUSED(straitCommSplit(nullptr, 0, 0, &part, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitCommRegister(nullptr, &value, 4, &handle), "communicator is NULL");
  EXPECT_REFUSED(straitCommDeregister(nullptr, handle), "communicator is NULL");
  EXPECT_REFUSED(straitRedOpCreatePreMulSum(&op, &value, straitInt32, straitScalarHostImmediate, nullptr),
                 "communicator is NULL");
  EXPECT_REFUSED(straitRedOpDestroy(straitSum, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitAllReduce(&value, &value, 1, straitInt32, straitSum, nullptr, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitAllGather(&value, &value, 1, straitInt32, nullptr, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitReduceScatter(&value, &value, 1, straitInt32, straitSum, nullptr, nullptr), "communicator");
  EXPECT_REFUSED(straitAllToAll(&value, &value, 1, straitInt32, nullptr, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitAllToAllv(&value, &size, &size, &value, &size, &size, straitInt32, nullptr, nullptr), "NULL");
  EXPECT_REFUSED(straitBroadcast(&value, &value, 1, straitInt32, 0, nullptr, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitReduce(&value, &value, 1, straitInt32, straitSum, 0, nullptr, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitGather(&value, &value, 1, straitInt32, 0, nullptr, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitScatter(&value, &value, 1, straitInt32, 0, nullptr, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitSend(&value, 1, straitInt32, 0, nullptr, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitRecv(&value, 1, straitInt32, 0, nullptr, nullptr), "communicator is NULL");
  EXPECT_REFUSED(straitBarrier(nullptr, nullptr), "communicator is NULL");
}

TEST(InitArguments, RankAndRanks) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  straitComm_t comm = nullptr;
  EXPECT_REFUSED(straitCommInitRank(nullptr, 1, &id, 0, nullptr), "NULL");
  EXPECT_REFUSED(straitCommInitRank(&comm, 1, nullptr, 0, nullptr), "unique id");
  EXPECT_REFUSED(straitCommInitRank(&comm, 0, &id, 0, nullptr), "0 ranks");
  EXPECT_REFUSED(straitCommInitRank(&comm, -2, &id, 0, nullptr), "-2 ranks");
  EXPECT_REFUSED(straitCommInitRank(&comm, std::numeric_limits<int>::max(), &id, 0, nullptr), "2147483647 ranks");
  EXPECT_REFUSED(straitCommInitRank(&comm, 2, &id, 2, nullptr), "rank 2");
  EXPECT_REFUSED(straitCommInitRank(&comm, 2, &id, -1, nullptr), "rank -1");
  EXPECT_REFUSED(straitCommInitEnv(nullptr, nullptr), "NULL");
  const straitUniqueId garbage{};
  EXPECT_REFUSED(straitCommInitRank(&comm, 2, &garbage, 0, nullptr), "unique id");
  EXPECT_EQ(comm, nullptr);
  STRAIT_EXPECT_OK(straitCommInitRank(&comm, 1, &id, 0, nullptr));  // the id is still valid
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

TEST(InitArguments, Configuration) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  straitComm_t comm = nullptr;
  straitConfig_t config{};
  EXPECT_REFUSED(straitCommInitRank(&comm, 1, &id, 0, &config), "STRAIT_CONFIG_INITIALIZER");
  EXPECT_REFUSED(straitCommInitEnv(&comm, &config), "STRAIT_CONFIG_INITIALIZER");
  config = STRAIT_CONFIG_INITIALIZER;
  config.timeout_ms = -1;
  EXPECT_REFUSED(straitCommInitRank(&comm, 1, &id, 0, &config), "timeout");
  config = STRAIT_CONFIG_INITIALIZER;
  config.device = -2;
  EXPECT_REFUSED(straitCommInitRank(&comm, 1, &id, 0, &config), "device -2");
  config.device = 1000;
#ifdef STRAIT_HAS_CUDA
  EXPECT_NE(straitCommInitRank(&comm, 1, &id, 0, &config), straitSuccess);
  EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("GPU 1000"));
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));  // a new id: rank 0 was refused only after the ranks had met
#else
  EXPECT_EQ(straitCommInitRank(&comm, 2, &id, 0, &config), straitUnsupported) << "without waiting for rank 1";
  EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("device 1000"));
#endif
  config = STRAIT_CONFIG_INITIALIZER;
  config.size_bytes = sizeof config + 64;  // as of a later version, whose additional fields this one does not know
  STRAIT_EXPECT_OK(straitCommInitRank(&comm, 1, &id, 0, &config));
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

TEST(InitArguments, RankTwiceIsToldToAll) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  const straitConfig_t config = test_config();
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      straitComm_t comm = nullptr;
      EXPECT_EQ(straitCommInitRank(&comm, 3, &id, std::min(i, 1), &config), straitInvalidArgument);
      EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("rank 1"));
      EXPECT_EQ(comm, nullptr);
    });
}

void check_works(straitComm_t comm, int rank, int ranks) {
  const auto mine = numbers(100, static_cast<std::uint64_t>(rank));
  std::vector<std::int32_t> sum(100);
  STRAIT_EXPECT_OK(straitAllReduce(mine.data(), sum.data(), 100, straitInt32, straitSum, comm, nullptr));
  EXPECT_EQ(sum, sum_of_numbers(100, 0, ranks));
}

void refuse_collective_arguments(straitComm_t comm, int rank, int ranks) {
  std::array<std::int32_t, 64> a{}, b{};
  constexpr std::size_t huge = std::numeric_limits<std::size_t>::max() / 4;
  EXPECT_REFUSED(straitAllReduce(nullptr, b.data(), 4, straitInt32, straitSum, comm, nullptr), "send buffer");
  EXPECT_REFUSED(straitAllReduce(a.data(), nullptr, 4, straitInt32, straitSum, comm, nullptr), "receive buffer");
  EXPECT_REFUSED(straitAllReduce(a.data(), b.data(), 4, no_type, straitSum, comm, nullptr), "12 is no data type");
  EXPECT_REFUSED(straitAllReduce(a.data(), b.data(), 4, straitInt32, no_op, comm, nullptr), "77 is no reduction");
  EXPECT_REFUSED(straitAllReduce(a.data(), a.data() + 2, 4, straitInt32, straitSum, comm, nullptr), "overlap");
  EXPECT_REFUSED(straitAllReduce(a.data(), b.data(), huge, straitInt64, straitSum, comm, nullptr), "count");
  EXPECT_REFUSED(straitAllGather(a.data(), a.data() + 1, 4, straitInt32, comm, nullptr), "overlap");
  EXPECT_REFUSED(straitAllGather(a.data(), nullptr, 4, straitInt32, comm, nullptr), "receive buffer");
  EXPECT_REFUSED(straitAllGather(a.data(), b.data(), huge, straitInt32, comm, nullptr), "count");
  const std::size_t of_all = std::numeric_limits<std::size_t>::max() / 2 / (4 * static_cast<std::size_t>(ranks)) + 1;
  EXPECT_REFUSED(straitAllGather(a.data(), b.data(), of_all, straitInt32, comm, nullptr), "count");
  EXPECT_REFUSED(straitReduceScatter(nullptr, b.data(), 4, straitInt32, straitSum, comm, nullptr), "send buffer");
  EXPECT_REFUSED(straitReduceScatter(a.data(), a.data() + 1, 4, straitInt32, straitSum, comm, nullptr), "overlap");
  EXPECT_REFUSED(straitAllToAll(a.data(), a.data() + 1, 4, straitInt32, comm, nullptr), "overlap");
  EXPECT_REFUSED(straitAllToAll(a.data(), b.data(), 4, no_type, comm, nullptr), "data type");
  for (int root : {-1, ranks, 1 << 30}) {
    const std::string named = "root " + std::to_string(root);
    EXPECT_REFUSED(straitBroadcast(a.data(), b.data(), 4, straitInt32, root, comm, nullptr), named);
    EXPECT_REFUSED(straitReduce(a.data(), b.data(), 4, straitInt32, straitSum, root, comm, nullptr), named);
    EXPECT_REFUSED(straitGather(a.data(), b.data(), 4, straitInt32, root, comm, nullptr), named);
    EXPECT_REFUSED(straitScatter(a.data(), b.data(), 4, straitInt32, root, comm, nullptr), named);
    const std::string peer = "peer " + std::to_string(root);
    EXPECT_REFUSED(straitSend(a.data(), 4, straitInt32, root, comm, nullptr), peer);
    EXPECT_REFUSED(straitRecv(a.data(), 4, straitInt32, root, comm, nullptr), peer);
  }
  EXPECT_REFUSED(straitBroadcast(nullptr, b.data(), 4, straitInt32, rank, comm, nullptr), "send buffer");
  EXPECT_REFUSED(straitGather(a.data(), nullptr, 4, straitInt32, rank, comm, nullptr), "receive buffer");
  EXPECT_REFUSED(straitSend(nullptr, 4, straitInt32, 0, comm, nullptr), "send buffer");
  EXPECT_REFUSED(straitRecv(nullptr, 4, straitInt32, 0, comm, nullptr), "receive buffer");
  void* const stream = a.data();
  EXPECT_REFUSED(straitAllReduce(a.data(), b.data(), 4, straitInt32, straitSum, comm, stream), "name its device");
  EXPECT_REFUSED(straitSend(a.data(), 4, straitInt32, 0, comm, stream), "name its device");
  EXPECT_REFUSED(straitBarrier(comm, stream), "name its device");
  check_works(comm, rank, ranks);
}
TEST(CollectiveArguments, AreRefused) { run_as_threads(2, refuse_collective_arguments); }

void refuse_v_arguments(straitComm_t comm, int rank, int ranks) {
  std::array<std::int32_t, 64> a{}, b{};
  using Sizes = std::array<std::size_t, 2>;
  const Sizes counts{4, 4}, offsets{0, 4}, overlapping{0, 2};
  Sizes huge{4, 4}, uneven{4, 4};
  huge[1] = std::numeric_limits<std::size_t>::max() / 2;
  uneven[static_cast<std::size_t>(rank)] = 5;
  const auto call = [&](const std::size_t* send_counts, const std::size_t* send_offsets,
                        const std::size_t* receive_counts, const std::size_t* receive_offsets, void* receive) {
    return straitAllToAllv(a.data(), send_counts, send_offsets, receive, receive_counts, receive_offsets, straitInt32,
                           comm, nullptr);
  };
  EXPECT_REFUSED(call(nullptr, offsets.data(), counts.data(), offsets.data(), b.data()), "NULL");
  EXPECT_REFUSED(call(counts.data(), nullptr, counts.data(), offsets.data(), b.data()), "NULL");
  EXPECT_REFUSED(call(counts.data(), offsets.data(), nullptr, offsets.data(), b.data()), "NULL");
  EXPECT_REFUSED(call(counts.data(), offsets.data(), counts.data(), nullptr, b.data()), "NULL");
  EXPECT_REFUSED(call(counts.data(), offsets.data(), counts.data(), offsets.data(), nullptr), "receive buffer");
  EXPECT_REFUSED(call(counts.data(), offsets.data(), counts.data(), overlapping.data(), b.data()), "overlap");
  EXPECT_REFUSED(call(counts.data(), offsets.data(), counts.data(), offsets.data(), a.data()), "overlap");
  EXPECT_REFUSED(call(huge.data(), offsets.data(), counts.data(), offsets.data(), b.data()), "rank 1");
  EXPECT_REFUSED(call(counts.data(), huge.data(), counts.data(), offsets.data(), b.data()), "rank 1");
  EXPECT_REFUSED(call(counts.data(), offsets.data(), huge.data(), offsets.data(), b.data()), "receive count or offset");
  EXPECT_REFUSED(call(counts.data(), offsets.data(), counts.data(), huge.data(), b.data()), "receive count or offset");
  EXPECT_REFUSED(call(uneven.data(), offsets.data(), counts.data(), offsets.data(), b.data()), "to itself");
  STRAIT_EXPECT_OK(call(counts.data(), offsets.data(), counts.data(), offsets.data(), b.data()));
  check_works(comm, rank, ranks);
}
TEST(CollectiveArguments, OfAllToAllVAreRefused) { run_as_threads(2, refuse_v_arguments); }

TEST(CommunicatorArguments, AreRefused) {
  run_as_threads(2, [](straitComm_t comm, int rank, int ranks) {
    std::array<std::int32_t, 4> memory{};
    void* handle = nullptr;
    straitRedOp_t op;
    straitComm_t part = nullptr;
    const straitConfig_t uninitialised{};
    EXPECT_REFUSED(straitCommCount(comm, nullptr), "NULL");
    EXPECT_REFUSED(straitCommUserRank(comm, nullptr), "NULL");
    EXPECT_REFUSED(straitCommDevice(comm, nullptr), "NULL");
    EXPECT_REFUSED(straitCommGetAsyncError(comm, nullptr), "NULL");
    EXPECT_REFUSED(straitCommSplit(comm, 0, 0, nullptr, nullptr), "NULL");
    EXPECT_REFUSED(straitCommSplit(comm, 0, 0, &part, &uninitialised), "STRAIT_CONFIG_INITIALIZER");
    EXPECT_REFUSED(straitCommRegister(comm, nullptr, 16, &handle), "memory");
    EXPECT_REFUSED(straitCommRegister(comm, memory.data(), 0, &handle), "memory");
    EXPECT_REFUSED(straitCommRegister(comm, memory.data(), 16, nullptr), "NULL");
    EXPECT_REFUSED(straitCommRegister(comm, memory.data(), ~std::size_t{0}, &handle), "more than memory can hold");
    EXPECT_REFUSED(straitCommDeregister(comm, memory.data()), "handle");
    EXPECT_REFUSED(straitRedOpCreatePreMulSum(nullptr, memory.data(), straitInt32, straitScalarHostImmediate, comm),
                   "NULL");
    EXPECT_REFUSED(straitRedOpCreatePreMulSum(&op, nullptr, straitInt32, straitScalarHostImmediate, comm), "NULL");
    EXPECT_REFUSED(straitRedOpCreatePreMulSum(&op, memory.data(), no_type, straitScalarHostImmediate, comm),
                   "12 is no data type");
    EXPECT_REFUSED(
        straitRedOpCreatePreMulSum(&op, memory.data(), straitInt32, static_cast<straitScalarResidence_t>(2), comm),
        "2 is no residence");
    EXPECT_REFUSED(straitRedOpCreatePreMulSum(&op, reinterpret_cast<std::byte*>(memory.data()) + 2, straitInt32,
                                              straitScalarDevice, comm),
                   "multiple of 4 bytes");
    EXPECT_REFUSED(straitRedOpDestroy(no_op, comm), "not created");
    check_works(comm, rank, ranks);
  });
}

TEST(CommunicatorArguments, SomethingElseThanACommunicator) {
  alignas(16) std::array<std::byte, 256> memory{};
  const auto comm = reinterpret_cast<straitComm_t>(memory.data());
  EXPECT_REFUSED(straitBarrier(comm, nullptr), "not a communicator");
  EXPECT_REFUSED(straitCommDestroy(comm), "not a communicator");
}

}  // namespace
}  // namespace strait::testing
