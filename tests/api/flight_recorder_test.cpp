// The flight recorder through the public interface: dumps on request, on failure, on abort and on a signal.
#include <gmock/gmock.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class FlightRecorderTest : public ::testing::Test {
 protected:
  ~FlightRecorderTest() override { unsetenv("STRAIT_FLIGHT_RECORDER"); }
  void ask_for_dumps() const { setenv("STRAIT_FLIGHT_RECORDER", (folder_ + "/made").c_str(), 1); }
  /// An empty object where there is no such file (any more).
  static Json read(const std::filesystem::path& path) {
    std::ifstream file(path);
    return file ? Json::parse(file) : Json::object();
  }
  /// Returns the automatic dumps, by rank, once there are `wanted` of them, or after 10 s.
  std::map<int, Json> dumps(std::size_t wanted) const {
    std::map<int, Json> found;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (found.size() < wanted && std::chrono::steady_clock::now() < deadline) {
      found.clear();
      if (std::filesystem::exists(folder_ + "/made"))
        for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/made"))
          if (const Json json = entry.path().extension() == ".json" ? read(entry.path()) : Json::object();
              json.value("rank", -1) >= 0)  // an init does not know its rank from the start
            found[json.at("rank")] = json;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(found.size(), wanted);
    return found;
  }
  TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

void all_reduce(straitComm_t comm, straitResult_t expected = straitSuccess) {
  std::int32_t value = 1;
  EXPECT_EQ(straitAllReduce(&value, &value, 1, straitInt32, straitSum, comm, nullptr), expected);
}

TEST_F(FlightRecorderTest, ALimitOfFileSizesIsAnErrorThatLeavesNothing) {
  run_as_threads(1, [&](straitComm_t comm, int, int) {
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{16, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const straitResult_t dumped = straitCommDumpFlightRecorder(comm, (folder_ + "/dump").c_str());
    const std::string message = straitGetLastError(nullptr);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(dumped, straitSystemError);
    EXPECT_THAT(message, HasSubstr("/dump: File too large"));
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
  });
}

TEST_F(FlightRecorderTest, AFolderThatCannotBeMadeIsNamed) {
  setenv("STRAIT_FLIGHT_RECORDER", "/proc/strait", 1);
  run_as_threads(1, [&](straitComm_t comm, int, int) {
    EXPECT_EQ(straitCommDumpFlightRecorder(comm, nullptr), straitSystemError);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("cannot make the folder /proc/strait (STRAIT_FLIGHT_RECORDER)"));
  });
}

TEST_F(FlightRecorderTest, AFolderThatCannotBeUsedIsAWarningAtInit) {
  std::ofstream(folder_ + "/file") << "no folder";
  for (const auto& [folder, why] : {std::pair{std::string("/proc/strait2"), "cannot make the folder /proc/strait2 "},
                                    {"/proc", "cannot make files in the folder /proc "},
                                    {folder_ + "/file/in", "/file/in (STRAIT_FLIGHT_RECORDER): Not a directory"}}) {
    setenv("STRAIT_FLIGHT_RECORDER", folder.c_str(), 1);
    ::testing::internal::CaptureStderr();
    for (int times = 0; times < 2; ++times) run_as_threads(1, [](straitComm_t, int, int) {});
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, AllOf(HasSubstr("the flight recorder's files will be lost: "), HasSubstr(why)));
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  }
}

TEST_F(FlightRecorderTest, AFolderThatCanBeUsedIsMadeAtInitWithItsParents) {
  setenv("STRAIT_FLIGHT_RECORDER", (folder_ + "/logs/job1/").c_str(), 1);
  ::testing::internal::CaptureStderr();
  run_as_threads(2, [&](straitComm_t, int, int) { EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/logs/job1")); });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(FlightRecorderTest, ARelativeFolderStaysWhereItWasAtInit) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder_ + "/elsewhere");
  std::filesystem::current_path(folder_);
  setenv("STRAIT_FLIGHT_RECORDER", "logs/made", 1);
  run_as_threads(1, [&](straitComm_t comm, int, int) {
    std::filesystem::current_path(folder_ + "/elsewhere");
    STRAIT_EXPECT_OK(straitCommDumpFlightRecorder(comm, nullptr));
  });
  std::filesystem::current_path(before);
  EXPECT_FALSE(std::filesystem::is_empty(folder_ + "/logs/made"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/elsewhere"));
}

TEST_F(FlightRecorderTest, SaysWhetherItSeesOtherRanksRecordsAtOnce) {
  for (const char* const transport : {"loopback", "shm", "tcp"}) {
    setenv("STRAIT_TRANSPORT", transport, 1);
    run_as_threads(2, [&](straitComm_t comm, int rank, int) {
      const std::string path = folder_ + "/" + std::to_string(rank);
      STRAIT_EXPECT_OK(straitCommDumpFlightRecorder(comm, path.c_str()));
      EXPECT_EQ(read(path).at("shares_control"), std::string(transport) != "tcp");
    });
  }
  unsetenv("STRAIT_TRANSPORT");
}

TEST_F(FlightRecorderTest, ShowsWhatWasPostedAndFinished) {
  run_as_threads(2, [&](straitComm_t comm, int rank, int) {
    all_reduce(comm);
    std::int32_t value = rank;
    STRAIT_EXPECT_OK(straitAllReduce(&value, &value, 0, straitInt32, straitSum, comm, nullptr));
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitSend(&value, 1, straitInt32, 1 - rank, comm, nullptr));
    std::int32_t got = 0;
    STRAIT_EXPECT_OK(straitRecv(&got, 1, straitInt32, 1 - rank, comm, nullptr));
    STRAIT_EXPECT_OK(straitGroupEnd());
    STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
    const std::string path = folder_ + "/" + std::to_string(rank);
    STRAIT_EXPECT_OK(straitCommDumpFlightRecorder(comm, path.c_str()));
    const Json json = read(path);
    EXPECT_EQ(json.at("rank"), rank);
    EXPECT_LT(json.at("process_began_unix_us"), json.at("unix_us"));
    EXPECT_EQ(json.at("transport"), "loopback");
    EXPECT_FALSE(json.contains("gpu"));
    const Json& own = json.at("seen").at(static_cast<std::size_t>(rank));
    ASSERT_EQ(own.at("calls").size(), 3U);
    EXPECT_EQ(own["calls"][0]["call"], "all-reduce(count 1, int32, sum)");
    EXPECT_EQ(own["calls"][2]["call"], "barrier");
    for (const Json& call : own["calls"])
      EXPECT_GE(call.at("finished_unix_us"), call.at("posted_unix_us")) << call.dump();
    ASSERT_EQ(own.at("messages").size(), 2U);
    EXPECT_EQ(own["messages"][0]["to"], 1 - rank);
    EXPECT_EQ(own["messages"][1]["from"], 1 - rank);
    EXPECT_FALSE(own["messages"][1]["finished_unix_us"].is_null());
  });
}

TEST_F(FlightRecorderTest, RanksOfOneCommunicatorShareItsNumber) {
  std::mutex mutex;
  std::set<std::string> numbers;
  run_as_threads(3, [&](straitComm_t comm, int rank, int) {
    straitComm_t part = nullptr;
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, rank, &part, nullptr));
    for (straitComm_t each : {comm, part}) {
      const std::string path = folder_ + "/" + std::to_string(rank);
      STRAIT_EXPECT_OK(straitCommDumpFlightRecorder(each, path.c_str()));
      const std::scoped_lock lock(mutex);
      numbers.insert(read(path).at("communicator"));
    }
    STRAIT_EXPECT_OK(straitCommDestroy(part));
  });
  EXPECT_EQ(numbers.size(), 2U);
}

TEST_F(FlightRecorderTest, WithoutAFolderOrAFileThereIsAnError) {
  run_as_threads(1, [&](straitComm_t comm, int, int) {
    EXPECT_EQ(straitCommDumpFlightRecorder(comm, nullptr), straitInvalidArgument);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("STRAIT_FLIGHT_RECORDER"));
    EXPECT_EQ(straitCommDumpFlightRecorder(comm, (folder_ + "/none/file").c_str()), straitSystemError);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr(folder_ + "/none/file"));
  });
  EXPECT_EQ(straitCommDumpFlightRecorder(nullptr, "x"), straitInvalidArgument);
}

TEST_F(FlightRecorderTest, AnAbortDumpsEveryRankThatSeesIt) {
  ask_for_dumps();
  run_as_threads(2, [&](straitComm_t comm, int rank, int) {
    all_reduce(comm);
    if (rank == 0) {
      all_reduce(comm, straitAborted);  // rank 1 does not come
      all_reduce(comm, straitAborted);  // must not dump again
    } else {
      const auto is_awaited = [&, own = folder_ + "/own"] {
        STRAIT_EXPECT_OK(straitCommDumpFlightRecorder(comm, own.c_str()));
        const Json seen = read(own).at("seen").at(0);
        return seen.at("calls").size() == 2 && seen.at("awaits") == 1;
      };
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (!is_awaited() && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      STRAIT_EXPECT_OK(straitCommAbort(comm));
    }
    const auto found = dumps(2);
    ASSERT_EQ(found.size(), 2U);
    const Json& json = found.at(rank);
    EXPECT_THAT(json.at("reason"), HasSubstr("was aborted by rank 1"));
    ASSERT_EQ(json.at("seen").at(0).at("calls").size(), 2U);
    EXPECT_TRUE(json["seen"][0]["calls"][1]["finished_unix_us"].is_null());
    EXPECT_EQ(json["seen"][0].at("awaits"), 1);
    EXPECT_TRUE(json["seen"][1].at("awaits").is_null());
    EXPECT_EQ(json["seen"][1]["calls"].size(), 1U);
  });
}

TEST_F(FlightRecorderTest, AFailureDumpsWithItsMessage) {
  ask_for_dumps();
  run_as_threads(2, [&](straitComm_t comm, int rank, int) {
    std::int32_t value = 0;
    EXPECT_EQ(straitAllReduce(&value, &value, 1, straitInt32, rank == 0 ? straitSum : straitMax, comm, nullptr),
              straitMismatch);
  });
  for (const auto& [rank, json] : dumps(2)) EXPECT_THAT(json.at("reason"), HasSubstr("ranks made different calls"));
}

volatile sig_atomic_t signals_before = 0;
/// The program's own handler, installed before its first communicator.
const bool has_handler = signal(SIGUSR1, [](int) { signals_before = signals_before + 1; }) != SIG_ERR;

/// Undoes that, so that the signal would end the process as in most programs. (Strait's handler, which a child may have
/// inherited, stays.)
void forget_handler() {
  struct sigaction current {};
  sigaction(SIGUSR1, nullptr, &current);
  if ((current.sa_flags & SA_SIGINFO) == 0) signal(SIGUSR1, SIG_DFL);
}

TEST_F(FlightRecorderTest, ASignalDuringTheInitSaysWhatTheRankWaitsFor) {
  ask_for_dumps();
  const pid_t child = fork_rank([] {
    forget_handler();
    straitUniqueId id;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    straitConfig_t config = test_config();
    config.init_timeout_ms = 5000;
    straitComm_t comm = nullptr;
    EXPECT_EQ(straitCommInitRank(&comm, 3, &id, 1, &config), straitTimeout);  // ranks 0 and 2 do not come
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(4);
  Json json = Json::object();
  while (json.value("missing", Json::array()).empty() && std::chrono::steady_clock::now() < deadline) {
    // The folder is made once the handler is there.
    if (std::filesystem::exists(folder_ + "/made")) kill(child, SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (std::filesystem::exists(folder_ + "/made"))
      for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/made"))
        if (entry.path().filename().string().ends_with("-rank1.json")) json = read(entry.path());
  }
  EXPECT_EQ(wait_for(child, 20'000), 0);
  ASSERT_FALSE(json.empty());
  EXPECT_EQ(json.at("format"), "strait flight recorder init 1");
  EXPECT_EQ(json.at("call"), "straitCommInitRank");
  EXPECT_EQ(json.at("rank"), 1);
  EXPECT_EQ(json.at("ranks"), 3);
  EXPECT_EQ(json.at("pid"), child);
  EXPECT_EQ(json.at("missing"), Json({0, 2}));
  EXPECT_EQ(json.at("awaits"), "the other ranks to join at " + json.at("root").get<std::string>());
  EXPECT_LT(json.at("began_unix_us"), json.at("unix_us"));
  EXPECT_LT(json.at("process_began_unix_us"), json.at("began_unix_us"));
  EXPECT_EQ(dumps(1).count(1), 1U) << "after a failure the file stays";
}

TEST_F(FlightRecorderTest, WhatWasDumpedOfAnInitGoesWhenItHasSucceeded) {
  ask_for_dumps();
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::jthread first([&] { join_and_run(id, 0, 2, [](straitComm_t comm, int, int) { all_reduce(comm); }); });
  const auto root = unpack_unique_id(std::as_bytes(std::span(id.internal)))->root;
  while (report_of_root(root)->joined == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  raise(SIGUSR1);
  EXPECT_EQ(dumps(1).at(0).at("call"), "straitCommInitRank");
  join_and_run(id, 1, 2, [](straitComm_t comm, int, int) { all_reduce(comm); });
  first.join();
  // The init does not wait for the thread that dumps, which may just have written it.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!std::filesystem::is_empty(folder_ + "/made") && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/made"));
}

TEST_F(FlightRecorderTest, ASignalDuringASplitSaysThatItIsOne) {
  ask_for_dumps();
  run_as_threads(2, [&](straitComm_t comm, int rank, int) {
    if (rank == 1) {
      std::set<std::string> awaited;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (awaited.empty() && std::chrono::steady_clock::now() < deadline) {
        raise(SIGUSR1);  // again until rank 0 waits in its call
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/made"))
          if (entry.path().filename().string().ends_with("-rank0.json"))
            if (const std::string whom = read(entry.path()).value("awaits", ""); !whom.empty()) awaited.insert(whom);
      }
      dumps(2);  // the communicator's, of both ranks
      EXPECT_EQ(awaited, std::set<std::string>{"all ranks of the communicator to call straitCommSplit"});
    }
    straitComm_t part = nullptr;
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, rank, &part, nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(part));
  });
}

/// The user knows only the earlier numbers while it is made.
TEST_F(FlightRecorderTest, ASignalDuringAShrinkNamesRanksByTheirEarlierNumbers) {
  ask_for_dumps();
  run_as_threads(3, [&](straitComm_t comm, int rank, int) {
    if (rank == 0) return;  // is left out
    Json json = Json::object();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (rank == 2 && json.value("missing", Json::array()).empty() && std::chrono::steady_clock::now() < deadline) {
      raise(SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/made"))
        if (const Json found = entry.path().extension() == ".json" ? read(entry.path()) : Json::object();
            found.contains("missing"))
          json = found;
    }
    if (rank == 2) {
      EXPECT_EQ(json.value("call", ""), "straitCommShrink");
      EXPECT_EQ(json.value("rank", -1), 1);
      EXPECT_EQ(json.value("missing", Json::array()), Json({2}));
      EXPECT_EQ(json.value("known_as", Json::array()), Json({1, 2}));
    }
    const int left_out = 0;
    straitComm_t smaller = nullptr;
    STRAIT_EXPECT_OK(straitCommShrink(comm, &left_out, 1, &smaller, nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(smaller));
  });
}

/// A communicator must not fail because dumps on a signal are impossible.
TEST_F(FlightRecorderTest, WithoutAThreadForSignalsThereAreCommunicatorsAllTheSame) {
  ask_for_dumps();
  const pid_t child = fork_rank([] {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t{1} << 47);  // more than the address space
    ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
    ASSERT_THROW(std::thread([] {}).join(), std::system_error);
    straitComm_t comm = nullptr;
    STRAIT_EXPECT_OK(straitCommInitEnv(&comm, nullptr));
    if (comm == nullptr) return;
    all_reduce(comm);
    STRAIT_EXPECT_OK(straitCommDumpFlightRecorder(comm, nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  EXPECT_EQ(wait_for(child, 10'000), 0);
  dumps(1);
}

TEST_F(FlightRecorderTest, ASignalDumpsAndReachesTheHandlerOfBefore) {
  ask_for_dumps();
  run_as_threads(1, [&](straitComm_t comm, int, int) {
    all_reduce(comm);
    const int before = signals_before;
    raise(SIGUSR1);
    const auto found = dumps(1);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found.at(0).at("reason"), "signal");
    EXPECT_TRUE(has_handler);
    EXPECT_EQ(signals_before, before + 1);
    straitResult_t error = straitInternalError;
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &error));
    EXPECT_EQ(error, straitSuccess);
  });
  std::filesystem::remove_all(folder_ + "/made");
  raise(SIGUSR1);  // no communicator is left to dump
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/made"));
}

}  // namespace
}  // namespace strait::testing
