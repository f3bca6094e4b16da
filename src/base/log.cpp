#include "base/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/environment.hpp"
#include "base/host_name.hpp"

namespace strait {
namespace {

constexpr int level_unread = -1;
std::atomic<int> current_level{level_unread};

/// Whether stderr was open when the library was loaded. If not, another file may have descriptor 2 later, and the log
/// must not overwrite it.
const bool has_stderr = ::fcntl(STDERR_FILENO, F_GETFD) != -1;

void write_line(int rank, std::string_view message) {
  if (!has_stderr) return;
  std::string line = "strait: " + host_name() + ":" + std::to_string(::getpid());
  if (rank >= 0) line += " rank " + std::to_string(rank);
  line += ": ";
  for (char c : message) line += c == '\n' ? ' ' : c;
  line += '\n';
  // A single write(2) keeps the line in one piece. If stderr does not accept it, the line is lost: that is no reason to
  // fail or to wait.
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, line.data(), line.size());
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
