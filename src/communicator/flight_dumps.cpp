// When and where the flight recorders of a process are dumped.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/shortage.hpp"
#include "base/unique_fd.hpp"
#include "communicator/flight_folder.hpp"
#include "communicator/flight_locks.hpp"
#include "communicator/flight_recorder.hpp"
#include "communicator/init_watch.hpp"

namespace strait {
namespace {

constexpr int dump_signal = SIGUSR1;

/// What the process has to dump. Never destroyed: the thread that dumps it may outlive main(). Its lock is
/// FlightLocks::recorders.
struct Recorders {
  std::set<const FlightRecorder*> live;
  std::set<InitWatch*> inits;  ///< of communicators that are being made, which have no recorder yet
  /// Of inits that have ended: those that have failed, and those whose files could not be removed. The next dump
  /// removes them: beside its files they would tell of ranks that wait no more.
  std::vector<std::shared_ptr<InitFile>> outdated;
};
Recorders& recorders() {
  static auto* const all = new Recorders;
  return *all;
}

// What the signal handler uses: nothing else is allowed in it.
std::atomic<int> wake_up{-1};  ///< the writing end of a pipe
std::atomic<pid_t> owner{0};   ///< the process whose thread reads it: a forked child has the handler, not the thread
struct sigaction handler_before;

void on_signal(int number, siginfo_t* info, void* context) {
  const int before = errno;
  if (getpid() == owner.load()) {
    // If the pipe is full, its reader wakes up as well.
    [[maybe_unused]] const auto written = write(wake_up.load(), "", 1);
  }
  errno = before;
  if ((handler_before.sa_flags & SA_SIGINFO) != 0 && handler_before.sa_sigaction != nullptr)
    handler_before.sa_sigaction(number, info, context);
  else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN)
    handler_before.sa_handler(number);
}

/// What is to be written of a communicator.
struct RecorderDump {
  int rank = -1;
  std::string file_name;
  std::string text;
};

/// What a dump writes and removes.
struct Dump {
  std::vector<RecorderDump> of_recorders;
  std::vector<InitDump> of_inits;
  std::vector<std::shared_ptr<InitFile>> outdated;
};

/// Makes the texts while the recorders are kept from ending.
Dump make_dump() {
  Dump dump;
  const Recorders& all = recorders();
  const std::scoped_lock lock(flight_locks().recorders);
  for (const FlightRecorder* recorder : all.live)
    dump.of_recorders.push_back(
        {static_cast<int>(recorder->about().rank), recorder->file_name(), recorder->json("signal")});
  for (InitWatch* init : all.inits) dump.of_inits.push_back(init->dump());
  dump.outdated = all.outdated;
  return dump;
}

Status write_dump(const Dump& dump) {
  for (const auto& file : dump.outdated) std::remove(file->discard().c_str());
  if (dump.of_recorders.empty() && dump.of_inits.empty()) return {};
  STRAIT_ASSIGN(const std::string folder, make_flight_folder());
  const auto warn = [](int rank, const Status& written) {
    if (!written) log_warn(rank, written.error().message);
  };
  // Inits first: one that is older than its rank's record counts as one that has ended.
  for (const InitDump& init : dump.of_inits)
    warn(init.rank, init.file->write(folder + "/" + init.file_name, init.rank, init.text));
  for (const RecorderDump& recorder : dump.of_recorders)
    warn(recorder.rank, write_flight_file(folder + "/" + recorder.file_name, recorder.rank, recorder.text));
  return {};
}

/// Writes apart from making the texts: the end of a communicator or of an init must not wait for a file system that
/// does not answer. To be called by one thread only.
void dump_all() {
  Dump dump = make_dump();
  for (const InitDump& init : dump.of_inits) log_warn(init.rank, init.said);  // first: it needs no file system
  if (dump.of_recorders.empty() && dump.of_inits.empty() && dump.outdated.empty()) return;
  const auto outdated = static_cast<std::ptrdiff_t>(dump.outdated.size());
  auto write = [dump = std::move(dump)] { return write_dump(dump); };
  if (const Status written = do_in_folder(flight_folder(), folder_patience, std::move(write)); !written) {
    log_warn(-1, "the flight recorder's files of SIGUSR1 are late or lost: " + written.error().message);
    return;
  }
  const std::scoped_lock lock(flight_locks().recorders);
  auto& all = recorders().outdated;
  all.erase(all.begin(), all.begin() + outdated);  // nobody else has removed any, and others come at the end
}

void dump_all_at_each_byte(int pipe_end) {
  char byte = 0;
  for (;;) {
    const ssize_t got = read(pipe_end, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    try {
      dump_all();
    } catch (const std::bad_alloc&) {  // without memory there is neither a dump nor a warning
    }
  }
}

/// Starts the thread and installs the handler, once per process, and the thread again in a forked child that makes
/// communicators of its own. The recorders' lock must be held.
void listen_for_signal() {
  if (owner.load() == getpid()) return;
  const bool inherited = owner.load() != 0;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    log_warn(-1, "the flight recorder cannot listen for SIGUSR1: no pipe. Raise the limit of open files (ulimit -n)");
    return;
  }
  UniqueFd reading(ends[0]), writing(ends[1]);
  fcntl(writing.get(), F_SETFL, O_NONBLOCK);  // a handler must not wait
  try {
    std::thread(dump_all_at_each_byte, reading.get()).detach();
  } catch (const std::system_error& error) {
    static pid_t told = 0;  // each communicator tries again
    if (std::exchange(told, getpid()) != getpid())
      log_warn(-1, cannot_start_thread(error, "that dumps flight recorders at SIGUSR1").value().message);
    return;
  }
  (void)reading.release();  // belongs to the thread, which does not end
  wake_up = writing.release();
  owner = getpid();
  if (inherited) {
    recorders().live.clear();  // the parent's, which dumps them itself
    recorders().inits.clear();
    recorders().outdated.clear();
    return;
  }
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(dump_signal, nullptr, &handler_before);
  sigaction(dump_signal, &action, nullptr);
}

/// The recorders' lock must be held.
void put_off_removal(std::shared_ptr<InitFile> file) noexcept {
  try {
    recorders().outdated.push_back(std::move(file));
  } catch (const std::bad_alloc&) {  // the file stays for longer
  }
}

}  // namespace

void watch_for_signal(const FlightRecorder& recorder) {
  if (flight_folder().empty()) return;
  const std::scoped_lock lock(flight_locks().recorders);
  listen_for_signal();
  recorders().live.insert(&recorder);
}

void stop_watching(const FlightRecorder& recorder) {
  const std::scoped_lock lock(flight_locks().recorders);
  recorders().live.erase(&recorder);
}

void watch_for_signal(InitWatch& init) {
  if (flight_folder().empty()) return;
  const std::scoped_lock lock(flight_locks().recorders);
  listen_for_signal();
  recorders().inits.insert(&init);
}

void stop_watching(InitWatch& init) {
  const std::scoped_lock lock(flight_locks().recorders);
  recorders().inits.erase(&init);
  if (auto file = init.file_left()) put_off_removal(std::move(file));
}

void remove_at_next_signal(std::shared_ptr<InitFile> file) {
  const std::scoped_lock lock(flight_locks().recorders);
  put_off_removal(std::move(file));
}

Status dump_to_folder(const FlightRecorder& recorder, const std::string& reason) {
  STRAIT_ASSIGN(const std::string path, make_flight_folder());
  return recorder.dump(path + "/" + recorder.file_name(), reason);
}

void dump_on_failure(const FlightRecorder& recorder, const Error& failure) {
  const std::string folder = flight_folder();
  if (folder.empty()) return;
  const int rank = static_cast<int>(recorder.about().rank);
  const std::string path = folder + "/" + recorder.file_name();
  auto write = [rank, path, text = recorder.json(failure.message)]() -> Status {
    STRAIT_TRY(make_flight_folder());
    return write_flight_file(path, rank, text);
  };
  // The rank is to hear of the failure, whatever the file system does.
  if (const Status written = do_in_folder(folder, folder_patience, std::move(write)); !written)
    log_warn(rank, written.error().message);
  else
    log_warn(rank, "the last calls are in " + path + "; `strait trace " + folder + "` shows who is behind");
}

}  // namespace strait
