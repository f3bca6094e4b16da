#include "base/log.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/environment.hpp"
#include "base/host_name.hpp"
#include "base/unique_fd.hpp"
#include "base/writes_raise_no_signal.hpp"

namespace strait {
namespace {

constexpr int level_unread = -1;
std::atomic<int> current_level{level_unread};

/// Whether stderr was open when the library was loaded. If not, another file may have descriptor 2 later, and the log
/// must not overwrite it.
const bool has_stderr = ::fcntl(STDERR_FILENO, F_GETFD) != -1;

/// Whether stderr takes a line now. A full pipe is given 100 ms, for its reader may only be behind. If nobody reads (a
/// terminal after Ctrl-S), later lines are not waited for: each would hold up its rank, whose deadlines count on.
bool accepts_line() {
  static std::atomic<bool> is_stuck{false};
  pollfd err{STDERR_FILENO, POLLOUT, 0};
  bool answered = false;
  const int looks = is_stuck ? 1 : 10;
  for (int i = 0; i < looks && !answered; ++i) answered = ::poll(&err, 1, looks == 1 ? 0 : 10) == 1;
  is_stuck = !answered;
  return answered && err.revents == POLLOUT;  // with POLLERR the reader of a pipe is gone
}

/// A single write(2) keeps the line in one piece. If stderr does not accept it, the line is lost: that is no reason to
/// fail, to wait, or to die of a signal. (Another process may fill a pipe between the question and the write.)
void write_whole(const std::string& line) {
  if (!accepts_line()) return;
  const WritesRaiseNoSignal no_signal;
  // A terminal that has room may have less than the line needs. Opened anew, because the program writes there, too.
  const UniqueFd terminal(
      ::isatty(STDERR_FILENO) == 1 ? ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1);
  const int out = terminal ? terminal.get() : STDERR_FILENO;
  [[maybe_unused]] auto written = ::write(out, line.data(), line.size());
}

/// Takes what fits into `room` off the text, up to a space if there is one in the second half.
std::string_view take_piece(std::string_view& text, std::size_t room) {
  std::size_t length = text.size();
  if (length > room) {
    const std::size_t space = text.rfind(' ', room - 1);
    length = space != std::string_view::npos && space >= room / 2 ? space + 1 : room;
  }
  const std::string_view piece = text.substr(0, length);
  text.remove_prefix(length);
  return piece;
}

/// A pipe that has room takes PIPE_BUF bytes at once: what is longer becomes several lines.
void write_line(int rank, std::string_view message) {
  if (!has_stderr) return;
  std::string begin = "strait: " + host_name() + ":" + std::to_string(::getpid());
  if (rank >= 0) begin += " rank " + std::to_string(rank);
  begin += ": ";
  std::string text(message);
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::string_view left = text;
  do {
    const std::string_view piece = take_piece(left, PIPE_BUF - begin.size() - std::string_view("... \n").size());
    write_whole(begin + (piece.data() == text.data() ? "" : "... ") + std::string(piece) + '\n');
  } while (!left.empty());
}

int read_level() {
  auto text = Environment().text("STRAIT_DEBUG");
  if (!text) {
    write_line(-1, text.error().message);
    return static_cast<int>(LogLevel::warn);
  }
  if (*text == "off") return static_cast<int>(LogLevel::off);
  if (*text == "info") return static_cast<int>(LogLevel::info);
  if (*text == "trace") return static_cast<int>(LogLevel::trace);
  return static_cast<int>(LogLevel::warn);
}

}  // namespace

bool log_enabled(LogLevel level) {
  int current = current_level.load(std::memory_order_relaxed);
  if (current == level_unread) {
    int read = read_level();
    // If another thread, or set_log_level(), has set the level meanwhile, that value applies.
    if (current_level.compare_exchange_strong(current, read, std::memory_order_relaxed)) current = read;
  }
  return level != LogLevel::off && static_cast<int>(level) <= current;
}

void set_log_level(LogLevel level) { current_level.store(static_cast<int>(level), std::memory_order_relaxed); }

void log(LogLevel level, int rank, std::string_view message) {
  int saved_errno = errno;
  if (log_enabled(level)) write_line(rank, message);
  errno = saved_errno;
}

}  // namespace strait
