// How the communicator handles calls and errors of GPU ranks. Without a GPU.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "fake_device_rank.hpp"
#include "gpu_ranks.hpp"
#include "support/ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

/// A communicator of a single GPU rank.
class DeviceRankTest : public ::testing::Test {
 protected:
  DeviceRankTest() {
    fake_gpu.launch_error.clear();
    fake_gpu.captures = false;
    fake_gpu.idle = -1;
    straitUniqueId id;
    straitConfig_t config = test_config();
    config.device = 0;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    STRAIT_EXPECT_OK(straitCommInitRank(&comm_, 1, &id, 0, &config));
  }
  ~DeviceRankTest() override { STRAIT_EXPECT_OK(straitCommDestroy(comm_)); }

  straitResult_t all_reduce() {
    return straitAllReduce(buffer_, buffer_, 4, straitFloat32, straitSum, comm_, reinterpret_cast<void*>(0x77));
  }
  Json dump() {
    char name[] = "/tmp/strait_flight_XXXXXX";
    close(mkstemp(name));
    STRAIT_EXPECT_OK(straitCommDumpFlightRecorder(comm_, name));
    std::ifstream file(name);
    Json json = Json::parse(file);
    std::filesystem::remove(name);
    return json;
  }

  straitComm_t comm_ = nullptr;
  float buffer_[4] = {};
};

TEST_F(DeviceRankTest, AFailedLaunchNamesTheCallItsNumberAndTheRank) {
  EXPECT_EQ(all_reduce(), straitSuccess);
  fake_gpu.launch_error = "cannot launch a kernel on GPU 0: an illegal memory access was encountered";
  EXPECT_EQ(all_reduce(), straitCudaError);
  EXPECT_THAT(straitGetLastError(comm_),
              AllOf(HasSubstr("all-reduce(count 4, float32, sum), collective number 2 on rank 0 (host "),
                    HasSubstr("): cannot launch a kernel on GPU 0: an illegal memory access was encountered"),
                    HasSubstr("earlier work")));
  EXPECT_EQ(all_reduce(), straitCudaError) << "sticky";
}

TEST_F(DeviceRankTest, AFailedMessageNamesItself) {
  fake_gpu.launch_error = "no";
  ASSERT_EQ(straitGroupStart(), straitSuccess);
  EXPECT_EQ(straitSend(buffer_, 2, straitFloat32, 0, comm_, nullptr), straitSuccess);
  EXPECT_EQ(straitRecv(buffer_ + 2, 2, straitFloat32, 0, comm_, nullptr), straitSuccess);
  EXPECT_EQ(straitGroupEnd(), straitCudaError);
  EXPECT_THAT(straitGetLastError(comm_), HasSubstr("send-recv(count 2, float32) on rank 0 (host "));
}

TEST_F(DeviceRankTest, TheFlightRecorderHasStreamsAndAsksTheGpu) {
  EXPECT_EQ(all_reduce(), straitSuccess);
  fake_gpu.captures = true;
  EXPECT_EQ(all_reduce(), straitSuccess);  // runs when the graph is launched, so it is not recorded
  for (const auto& [idle, work] : {std::pair(-1, "unknown"), {0, "running"}, {1, "finished"}}) {
    fake_gpu.idle = idle;
    EXPECT_EQ(dump().at("gpu").at("work"), work);
  }
  const Json calls = dump().at("seen").at(0).at("calls");
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].at("stream"), 0x77);
  EXPECT_TRUE(calls[0].at("finished_unix_us").is_null()) << "only the GPU knows";
}

/// A group with an unusable stream posts no call. Otherwise this rank would have posted the calls before it, which it
/// never launches, and be ahead of its peers.
TEST_F(DeviceRankTest, AStreamThatIsRefusedChangesNothing) {
  const auto call = [&](std::uintptr_t stream) {
    STRAIT_EXPECT_OK(straitBarrier(comm_, reinterpret_cast<straitStream_t>(stream)));
  };
  fake_gpu.aggregates = 3;
  fake_gpu.bad_stream = 2;
  STRAIT_EXPECT_OK(straitGroupStart());
  for (const std::uintptr_t stream : {1, 1, 2}) call(stream);
  EXPECT_EQ(straitGroupEnd(), straitInvalidUsage);
  EXPECT_EQ(dump().at("seen").at(0).at("calls").size(), 0u);
  EXPECT_EQ(straitSend(buffer_, 0, straitFloat32, 0, comm_, reinterpret_cast<straitStream_t>(2)), straitInvalidUsage);
  fake_gpu.bad_stream = 0;
  fake_gpu.aggregates = 1;
  call(2);
  EXPECT_EQ(dump().at("seen").at(0).at("calls").at(0).at("sequence"), 1);
}

/// A GPU's failure may first be noticed by a call's first query. It must fail the communicator, so that peers do not
/// wait.
TEST_F(DeviceRankTest, AGpuThatCannotBeAskedIsNews) {
  fake_gpu.bad_stream = 0x77;
  fake_gpu.bad_because = Code::cuda_error;
  EXPECT_EQ(all_reduce(), straitCudaError);
  fake_gpu.bad_stream = 0;
  fake_gpu.bad_because = Code::invalid_usage;
  EXPECT_EQ(all_reduce(), straitCudaError) << "sticky";
  EXPECT_THAT(straitGetLastError(comm_), AllOf(HasSubstr("all-reduce(count 4, float32, sum) on rank 0 (host "),
                                               HasSubstr("): the stream cannot be used")));
}

/// In a group, captured calls are not recorded by the flight recorder; the others are.
TEST_F(DeviceRankTest, EachCallOfAGroupIsCapturedOrNotByItsOwnStream) {
  fake_gpu.aggregates = 3;
  fake_gpu.capturing_stream = 2;
  STRAIT_EXPECT_OK(straitGroupStart());
  for (const std::uintptr_t stream : {1, 2, 1})
    STRAIT_EXPECT_OK(straitBarrier(comm_, reinterpret_cast<straitStream_t>(stream)));
  STRAIT_EXPECT_OK(straitGroupEnd());
  fake_gpu.capturing_stream = 0;
  fake_gpu.aggregates = 1;
  const Json calls = dump().at("seen").at(0).at("calls");
  ASSERT_EQ(calls.size(), 2u);
  for (const Json& call : calls) EXPECT_EQ(call.at("stream"), 1);
}

/// All messages of a group run on one stream. If only some were captured, captured ones would run now or as part of
/// another graph, or others would not run.
TEST_F(DeviceRankTest, MessagesOfAGroupAreAllInOneCaptureOrInNone) {
  const auto messages = [&](std::uintptr_t sends, std::uintptr_t receives) {
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitSend(buffer_, 2, straitFloat32, 0, comm_, reinterpret_cast<straitStream_t>(sends)));
    STRAIT_EXPECT_OK(straitRecv(buffer_ + 2, 2, straitFloat32, 0, comm_, reinterpret_cast<straitStream_t>(receives)));
    return straitGroupEnd();
  };
  fake_gpu.capturing_stream = 2;
  const int before = fake_gpu.launches;
  EXPECT_EQ(messages(1, 2), straitInvalidUsage);
  EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("some of their streams are being captured and others are not"));
  EXPECT_EQ(messages(2, 1), straitInvalidUsage);
  fake_gpu.other_capturing_stream = 4;
  EXPECT_EQ(messages(2, 4), straitInvalidUsage);
  fake_gpu.bad_stream = 3;
  EXPECT_EQ(messages(1, 3), straitInvalidUsage) << "of each of their streams it is asked";
  EXPECT_EQ(fake_gpu.launches, before);
  EXPECT_EQ(messages(2, 2), straitSuccess);
  EXPECT_EQ(messages(1, 1), straitSuccess) << "what is refused changes nothing";
  fake_gpu.capturing_stream = fake_gpu.other_capturing_stream = fake_gpu.bad_stream = 0;
}

/// Long after the communicator was made, registration asks all ranks; if one cannot register, none has registered.
TEST(DeviceRankMemory, IsRegisteredOnAllRanksOrNone) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  const auto body = [&](int rank) {
    straitConfig_t config = test_config();
    config.device = rank;
    straitComm_t comm = nullptr;
    STRAIT_EXPECT_OK(straitCommInitRank(&comm, 3, &id, rank, &config));
    float memory[4];
    void *handle = nullptr, *other = nullptr;
    STRAIT_EXPECT_OK(straitCommRegister(comm, memory, sizeof memory, &handle));
    STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
    fake_gpu.refusing_rank = 1;
    EXPECT_EQ(straitCommRegister(comm, memory, sizeof memory, &other),
              rank == 1 ? straitInvalidArgument : straitRemoteError);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr(rank == 1 ? "it is not shared" : "rank 1 (host "));
    EXPECT_EQ(straitCommDeregister(comm, other), straitInvalidArgument);
    STRAIT_EXPECT_OK(straitCommDeregister(comm, handle));
    EXPECT_EQ(straitCommDeregister(comm, handle), straitInvalidArgument);
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 3; ++rank) threads.emplace_back(body, rank);
  }
  EXPECT_EQ(fake_gpu.registrations, 0);
  fake_gpu.refusing_rank = -1;
}

/// This rank's GPU has registered the memory when another rank fails: the memory, which has no handle, is unmapped
/// again.
TEST(DeviceRankMemory, IsForgottenWhereTheLastAgreementFails) {
  fake_gpu.rank_without_memory = 1;
  run_two_ranks([](straitComm_t comm, int rank, int) {
    float memory[4];
    void* handle = nullptr;
    const straitResult_t result = straitCommRegister(comm, memory, sizeof memory, &handle);
    EXPECT_EQ(result, rank == 1 ? straitOutOfMemory : straitRemoteError);
  });
  EXPECT_EQ(fake_gpu.registrations, 0);
  fake_gpu.rank_without_memory = -1;
}

/// By the number of a registration, ranks find out that their outputs lie in the same one.
TEST(DeviceRankMemory, HasTheSameNumberOnAllRanksWhateverARankWasRefusedBefore) {
  run_two_ranks([](straitComm_t comm, int rank, int) {
    float memory[4];
    void* handle = nullptr;
    if (rank == 1) {
      EXPECT_EQ(straitCommRegister(comm, memory, 0, &handle), straitInvalidArgument);
      STRAIT_EXPECT_OK(straitGroupStart());
      STRAIT_EXPECT_OK(straitCommRegister(comm, memory, sizeof memory, &handle));
      EXPECT_EQ(straitCommRegister(comm, nullptr, 1, &handle), straitInvalidArgument) << "spoils the group";
      EXPECT_EQ(straitGroupEnd(), straitInvalidArgument);
    }
    STRAIT_EXPECT_OK(straitCommRegister(comm, memory, sizeof memory, &handle));
    meet();
    EXPECT_EQ(fake_gpu.registered[0], fake_gpu.registered[1]);
    STRAIT_EXPECT_OK(straitCommDeregister(comm, handle));
  });
}

straitResult_t sum_of(straitComm_t comm, std::size_t count) {
  std::array<float, 8> values{};
  const straitResult_t result =
      straitAllReduce(values.data(), values.data(), count, straitFloat32, straitSum, comm, nullptr);
  meet();
  return result;
}

/// Rank 1 captures a call that rank 0 runs, so the same calls have different numbers on the two ranks from then on.
TEST(DeviceRankCaptures, OfOneRankAloneAreNoMismatch) {
  run_two_ranks([](straitComm_t comm, int rank, int) {
    STRAIT_EXPECT_OK(sum_of(comm, 1));
    if (rank == 1) fake_gpu.capturing_rank = 1;
    STRAIT_EXPECT_OK(sum_of(comm, 2));
    if (rank == 1) fake_gpu.capturing_rank = -1;
    for (std::size_t count = 3; count < 8; ++count) STRAIT_EXPECT_OK(sum_of(comm, count));
  });
}

TEST(DeviceRankCaptures, ThatThereAreNoneLeavesMismatchesKnown) {
  run_two_ranks([](straitComm_t comm, int rank, int) {
    STRAIT_EXPECT_OK(sum_of(comm, 1));
    (void)sum_of(comm, rank == 1 ? 5 : 4);  // the rank that posts last may notice the mismatch at once
    EXPECT_EQ(sum_of(comm, 6), straitMismatch);
    EXPECT_THAT(straitGetLastError(comm), AllOf(HasSubstr("all-reduce(count 4"), HasSubstr("all-reduce(count 5")));
  });
}

/// A rank that waits for another rank's GPU is aborted; the other rank learns of it as soon as it continues.
TEST(DeviceRankAbort, EndsAnInitWhoseGpusAreBeingOpened) {
  fake_gpu.agrees = true;
  fake_gpu.opening = 0;
  fake_gpu.late_rank = 1;
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::array<straitComm_t, 2> comms{};
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      straitConfig_t config = test_config();
      config.device = rank;
      STRAIT_EXPECT_OK(straitGroupStart());
      STRAIT_EXPECT_OK(straitCommInitRank(&comms[static_cast<std::size_t>(rank)], 2, &id, rank, &config));
      EXPECT_EQ(straitGroupEnd(), straitAborted);
      EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("aborted while it was made, on rank 0 (host "));
    });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (fake_gpu.opening < 2 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(fake_gpu.opening, 2);
  const Stopwatch watch;
  STRAIT_EXPECT_OK(straitCommAbort(comms[0]));
  ranks[0].join();
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
  fake_gpu.late_rank = -1;
  ranks[1].join();
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(10));
  for (straitComm_t comm : comms) STRAIT_EXPECT_OK(straitCommDestroy(comm));
  fake_gpu.agrees = false;
}

/// The fake returns the same bus id for the first GPU of every process.
TEST(DeviceRankSettings, ProcessesShareAGpuWhereTheyAreToldTo) {
  for (const bool told : {false, true}) {
    LateId id;
    std::vector<pid_t> processes;
    for (int rank = 0; rank < 2; ++rank)
      processes.push_back(fork_rank([&, rank] {
        if (told) setenv("STRAIT_SHARE_GPUS", "1", 1);
        straitComm_t comm = nullptr;
        straitConfig_t config = test_config();
        config.device = 0;
        const straitResult_t joined = straitCommInitRank(&comm, 2, &id.await(), rank, &config);
        if (told) {
          STRAIT_EXPECT_OK(joined);
          STRAIT_EXPECT_OK(straitCommDestroy(comm));
        } else {
          EXPECT_EQ(joined, straitInvalidUsage);
          EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("use the same GPU (0000:40:00.0)"));
        }
      }));
    id.make();
    for (const pid_t process : processes) EXPECT_EQ(wait_for(process, 20'000), 0) << told;
  }
}

/// A communicator's wire format is used for calls that are long enough for it to be faster; the user may set this size.
/// A call that has its own format always uses it.
TEST(DeviceRankSettings, WireFormatsAreTakenFromWhereTheyPay) {
  constexpr std::size_t kb = 1 << 10;
  struct Case {
    const char* setting;
    std::size_t pays_bytes, first_bytes;
  };
  for (const Case& c : {Case{nullptr, 512 * kb, 512 * kb}, Case{nullptr, 7 * kb, 16 * kb},
                        Case{"64K", 512 * kb, 64 * kb}, Case{"0", 512 * kb, 0}}) {
    if (c.setting != nullptr) setenv("STRAIT_WIRE_BYTES", c.setting, 1);
    fake_gpu.wire_pays_bytes = c.pays_bytes;
    straitUniqueId id;
    straitComm_t comm = nullptr;
    straitConfig_t config = test_config();
    config.device = 0;
    config.wire = straitWireInt8;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    STRAIT_EXPECT_OK(straitCommInitRank(&comm, 1, &id, 0, &config));
    unsetenv("STRAIT_WIRE_BYTES");
    fake_gpu.log.clear();
    fake_gpu.logs = true;
    float data = 0;  // the fake does not access it
    const auto all_reduce = [&](std::size_t bytes, const straitCallOptions_t* options) {
      STRAIT_EXPECT_OK(straitAllReduceWithOptions(&data, &data, bytes / sizeof data, straitFloat32, straitSum, comm,
                                                  reinterpret_cast<void*>(0x77), options));
    };
    straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
    options.wire = straitWireFp8;
    if (c.first_bytes != 0) all_reduce(c.first_bytes - 4, nullptr);
    all_reduce(std::max<std::size_t>(c.first_bytes, 4), nullptr);
    all_reduce(4, &options);
    fake_gpu.logs = false;
    std::vector<std::string> expected{"0: all-reduce", "0: all-reduce in int8", "0: all-reduce in fp8"};
    if (c.first_bytes == 0) expected.erase(expected.begin());
    EXPECT_EQ(fake_gpu.log, expected) << c.pays_bytes;
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  }
}

/// Groups in STRAIT_P2P must be well formed and name existing ranks.
TEST(DeviceRankSettings, GroupsThatCannotBeAreRefused) {
  for (const auto& [groups, problem] : {std::pair("0-0", "rank 0 is twice in 0-0"), {"0-1", "names rank 1"}}) {
    setenv("STRAIT_P2P", groups, 1);
    straitUniqueId id;
    straitComm_t comm = nullptr;
    straitConfig_t config = test_config();
    config.device = 0;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    EXPECT_EQ(straitCommInitRank(&comm, 1, &id, 0, &config), straitInvalidArgument);
    EXPECT_THAT(straitGetLastError(nullptr),
                AllOf(HasSubstr("STRAIT_P2P=\"" + std::string(groups)), HasSubstr(problem)));
  }
  unsetenv("STRAIT_P2P");
}

}  // namespace
}  // namespace strait::testing
