// The folder of STRAIT_FLIGHT_RECORDER on a file system that does not answer.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <string>

#include "base/unique_fd.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace strait::testing {
namespace {

using namespace std::chrono_literals;

/// A communicator of one rank whose dump at SIGUSR1 does not get on: what is to be its file is a pipe that nobody
/// empties.
class SlowFolder : public ::testing::Test {
 protected:
  SlowFolder() {
    setenv("STRAIT_FLIGHT_RECORDER", folder_.c_str(), 1);
    straitUniqueId id;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    const straitConfig_t config = test_config();
    STRAIT_EXPECT_OK(straitCommInitRank(&comm_, 1, &id, 0, &config));
    std::int32_t value = 1;
    for (int call = 0; call < 64; ++call)  // the record is larger than the pipe then
      STRAIT_EXPECT_OK(straitAllReduce(&value, &value, 1, straitInt32, straitSum, comm_, nullptr));
  }
  ~SlowFolder() override {
    go_on();
    if (comm_ != nullptr) STRAIT_EXPECT_OK(straitCommDestroy(comm_));
    unsetenv("STRAIT_FLIGHT_RECORDER");
  }
  std::string only_file() const { return std::filesystem::directory_iterator(folder_)->path().string(); }

  /// Replaces the file that the dump begins with by a pipe.
  void block() {
    STRAIT_EXPECT_OK(straitCommDumpFlightRecorder(comm_, nullptr));
    unfinished_ = only_file() + ".part-0";
    ASSERT_EQ(mkfifo(unfinished_.c_str(), 0600), 0);
    pipe_ = UniqueFd(open(unfinished_.c_str(), O_RDONLY | O_NONBLOCK));
    ASSERT_TRUE(pipe_);
    ASSERT_GT(fcntl(pipe_.get(), F_SETPIPE_SZ, 4096), 0);
  }
  void await_dump() const {
    pollfd writer{pipe_.get(), POLLIN, 0};
    ASSERT_EQ(poll(&writer, 1, 10'000), 1);
  }
  /// Lets the dump go on to its end.
  void go_on() {
    char bytes[4096];
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (pipe_ && std::filesystem::exists(unfinished_) && std::chrono::steady_clock::now() < deadline)
      if (read(pipe_.get(), bytes, sizeof bytes) <= 0) std::this_thread::sleep_for(1ms);
    pipe_ = UniqueFd();
  }
  static void expect_done(std::future<void>& work, const char* what) {
    EXPECT_EQ(work.wait_for(5s), std::future_status::ready) << what << " waits for the file system";
  }
  TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  straitComm_t comm_ = nullptr;
  std::string unfinished_;
  UniqueFd pipe_;
};

TEST_F(SlowFolder, ADumpDoesNotHoldUpTheEndOfACommunicator) {
  block();
  raise(SIGUSR1);
  await_dump();
  auto ending = std::async(std::launch::async, [&] { STRAIT_EXPECT_OK(straitCommDestroy(comm_)); });
  expect_done(ending, "the end of a communicator");
  go_on();
  ending.get();
  comm_ = nullptr;
}

TEST_F(SlowFolder, ADumpDoesNotHoldUpTheEndOfAnInit) {
  block();
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  const auto join = [&](int rank) {
    return std::async(std::launch::async, [&id, rank] { join_and_run(id, rank, 2, [](straitComm_t, int, int) {}); });
  };
  auto first = join(0);
  raise(SIGUSR1);
  await_dump();
  auto second = join(1);
  expect_done(first, "an init");
  expect_done(second, "an init");
  go_on();
  first.get();
  second.get();
  // No file of an init is there, or it goes.
  const auto count = [&] {
    return std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  };
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (count() != 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(count(), 1);
}

TEST_F(SlowFolder, AFailureIsToldEvenIfItsRecordCannotBeWritten) {
  block();
  ::testing::internal::CaptureStderr();
  auto failing = std::async(std::launch::async, [&] {
    STRAIT_EXPECT_OK(straitCommAbort(comm_));
    EXPECT_EQ(straitBarrier(comm_, nullptr), straitAborted);
  });
  EXPECT_EQ(failing.wait_for(30s), std::future_status::ready) << "the failing call waits for the file system";
  go_on();
  failing.get();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("the folder " + folder_ + " (STRAIT_FLIGHT_RECORDER) does not answer"));
}

}  // namespace
}  // namespace strait::testing
