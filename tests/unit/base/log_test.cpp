// What the log does where stderr takes no more. Each case runs in a child, for which it is another stderr.
#include "base/log.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include "base/unique_fd.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using namespace std::chrono_literals;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    reader = UniqueFd(ends[0]);
    writer = UniqueFd(ends[1]);
  }
  /// Fills the pipe, and returns the number of bytes.
  std::size_t fill() const {
    const int flags = ::fcntl(writer.get(), F_GETFL);
    ::fcntl(writer.get(), F_SETFL, flags | O_NONBLOCK);
    std::size_t filled = 0;
    for (const std::string piece(PIPE_BUF, 'x'); ::write(writer.get(), piece.data(), piece.size()) > 0;)
      filled += piece.size();
    ::fcntl(writer.get(), F_SETFL, flags);
    return filled;
  }
  /// Returns what is in the pipe until all writers have closed it.
  std::string drain() {
    writer = UniqueFd();
    std::string all;
    std::array<char, 1 << 16> buffer{};
    for (ssize_t size = 0; (size = ::read(reader.get(), buffer.data(), buffer.size())) > 0;)
      all.append(buffer.data(), static_cast<std::size_t>(size));
    return all;
  }
  UniqueFd reader, writer;
};

/// Begins a child that logs to `out`, and ends with status 0 if it comes to the end. The signals of writes end it.
template <class Body>
pid_t begin_child(int out, Body&& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::dup2(out, STDERR_FILENO);
  for (const int each : {SIGPIPE, SIGXFSZ}) ::signal(each, SIG_DFL);
  body();
  ::_exit(0);
}

/// Returns the status of the child as waitpid() does. It is killed if it hangs.
int status_of(pid_t child) {
  int status = -1;
  for (const Stopwatch watch; ::waitpid(child, &status, WNOHANG) == 0;) {
    if (watch.elapsed() > 20s) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(1ms);
  }
  return status;
}

TEST(Log, DoesNotWaitForAPipeThatNobodyReads) {
  Pipe full;
  const std::size_t filled = full.fill();
  const Stopwatch watch;
  const pid_t child = begin_child(full.writer.get(), [] {
    for (int i = 0; i < 100; ++i) log_warn(0, "nobody reads this");
  });
  EXPECT_EQ(status_of(child), 0);
  EXPECT_LT(watch.elapsed(), 5s) << "only one line may wait a little";
  EXPECT_EQ(full.drain().size(), filled);
}

/// It has room for a while, but at last for less than a line.
TEST(Log, DoesNotWaitForATerminalThatNobodyReads) {
  const UniqueFd screen(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!screen || ::grantpt(screen.get()) != 0 || ::unlockpt(screen.get()) != 0)
    GTEST_SKIP() << "no terminals can be made here";
  const UniqueFd terminal(::open(::ptsname(screen.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal);
  const pid_t child = begin_child(terminal.get(), [] {
    for (int i = 0; i < 300; ++i) log_warn(0, std::string(300, 'x'));
  });
  EXPECT_EQ(status_of(child), 0);
  pollfd shown{screen.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&shown, 1, 0), 1) << "the first lines";
}

TEST(Log, WaitsALittleForAReaderThatIsBehind) {
  Pipe full;
  const std::size_t filled = full.fill();
  Pipe began;
  const pid_t child = begin_child(full.writer.get(), [&] {
    EXPECT_EQ(::write(began.writer.get(), "x", 1), 1);
    log_warn(0, "late");
  });
  char byte = 0;
  EXPECT_EQ(::read(began.reader.get(), &byte, 1), 1);
  std::this_thread::sleep_for(5ms);
  EXPECT_THAT(full.drain().substr(filled), ::testing::EndsWith("rank 0: late\n"));
  EXPECT_EQ(status_of(child), 0);
}

TEST(Log, DoesNotEndTheProcessWhereTheReaderIsGone) {
  Pipe alone;
  alone.reader = UniqueFd();
  EXPECT_EQ(status_of(begin_child(alone.writer.get(), [] { log_warn(0, "nobody reads this"); })), 0);
}

TEST(Log, DoesNotEndTheProcessAtTheLimitOfFileSizes) {
  std::string path = ::testing::TempDir() + "strait_log_XXXXXX";
  const UniqueFd file(::mkstemp(path.data()));
  const pid_t child = begin_child(file.get(), [] {
    const rlimit limit{10, 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 2; ++i) log_warn(0, "of this ten bytes fit");
  });
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_END), 10);
  ::unlink(path.c_str());
}

TEST(Log, SplitsWhatAPipeDoesNotTakeAtOnce) {
  Pipe pipe;
  std::string words, solid(2 * PIPE_BUF, 'y');
  for (int i = 0; i < 2000; ++i) words += std::to_string(i) + ' ';
  const pid_t child = begin_child(pipe.writer.get(), [&] {
    log_warn(3, words);
    log_warn(3, solid);
  });
  EXPECT_EQ(status_of(child), 0);
  std::istringstream lines(pipe.drain());
  std::string all;
  int continued = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LT(line.size(), PIPE_BUF);
    const std::size_t at = line.find(" rank 3: ");
    ASSERT_NE(at, std::string::npos) << line;
    std::string text = line.substr(at + 9);
    if (text.starts_with("... ")) {
      text.erase(0, 4);
      ++continued;
    }
    if (!text.starts_with("y")) EXPECT_TRUE(text.ends_with(' ')) << "a word is cut";
    all += text;
  }
  EXPECT_EQ(all, words + solid);
  EXPECT_GE(continued, 4);
}

}  // namespace
}  // namespace strait::testing
