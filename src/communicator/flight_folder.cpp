#include "communicator/flight_folder.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/own_thread.hpp"
#include "base/shortage.hpp"
#include "base/unique_fd.hpp"
#include "base/write_error.hpp"
#include "base/writes_raise_no_signal.hpp"
#include "communicator/flight_locks.hpp"

namespace strait {
namespace {

/// A busy machine may need so long for a folder that is all right.
constexpr std::int64_t least_patience_ms = 100;

constexpr const char* folder_remedy = "Name one that is there and that this user can write to, or that can be made";

/// Its lock is FlightLocks::known_folder.
struct KnownFolder {
  std::string given;  ///< the variable's value
  std::string path;   ///< its absolute path
  bool is_prepared = false;
};
KnownFolder& known_folder() {
  static auto* const known = new KnownFolder;  // never destroyed: the thread that dumps may outlive main()
  return *known;
}

/// Brings what is known up to date with the variable, which the program may have changed. The lock must be held.
void look_up(KnownFolder& known) {
  std::string given = Environment().text("STRAIT_FLIGHT_RECORDER").value_or("");  // any text is accepted
  if (given == known.given) return;
  std::error_code error;
  const std::filesystem::path path = given.empty() ? "" : std::filesystem::absolute(given, error);
  known.path = error ? given : path.string();  // without a working directory it cannot be made, which will be said
  while (known.path.size() > 1 && known.path.ends_with('/')) known.path.pop_back();  // as in the paths of its files
  known.given = std::move(given);
  known.is_prepared = false;
}

/// Makes a file in the folder and removes it: permissions alone do not tell, for example of read-only file systems.
Status check_writable(const std::string& path) {
  std::string name = path + "/.strait-flight-XXXXXX";
  const UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file)
    return fail_errno("cannot make files in the folder " + path + " (STRAIT_FLIGHT_RECORDER)", errno, folder_remedy);
  ::unlink(name.c_str());
  return {};
}

Status make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    return fail_errno("cannot make the folder " + path + " (STRAIT_FLIGHT_RECORDER)", error.value(), folder_remedy);
  return {};
}

/// The folders that do not answer, once for each work that waits. A forked child has not the threads that wait, so the
/// process belongs to the key. Their lock is FlightLocks::late_folders.
using LateFolders = std::multiset<std::pair<pid_t, std::string>>;
LateFolders& late_folders() {
  static auto* const late = new LateFolders;  // never destroyed: such threads may outlive main()
  return *late;
}

/// What is done in a folder. The thread that does it and the one that waits for it share this.
struct FolderWork {
  using Clock = std::chrono::steady_clock;
  const std::string folder;
  const std::function<Status()> work;
  const Clock::time_point began = Clock::now();
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Status> result;
  std::optional<LateFolders::iterator> late;  ///< set once nobody waits for the result any more
};

tl::unexpected<Error> no_answer(const std::string& folder) {
  return fail(Code::timeout, "the folder " + folder +
                                 " (STRAIT_FLIGHT_RECORDER) does not answer. See whether its file system hangs "
                                 "(`ls` would, too), or name a folder of a local disk");
}

void tell_late(const FolderWork& work, const Status& done) {
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(FolderWork::Clock::now() - work.began);
  log_warn(-1, "the folder " + work.folder + " (STRAIT_FLIGHT_RECORDER) has answered after " +
                   std::to_string(waited.count()) + " s" + (done ? "" : ": " + done.error().message));
}

/// Throws nothing where there is no memory left: that would end the process.
void do_and_tell(FolderWork& work) {
  is_own_thread = true;
  Status done = catch_shortage(work.work);
  const std::scoped_lock lock(work.mutex);
  if (!work.late) {
    work.result = std::move(done);
    work.changed.notify_all();
    return;
  }
  (void)catch_shortage([&] { tell_late(work, done); });
  const std::scoped_lock lock_late(flight_locks().late_folders);
  late_folders().erase(*work.late);
}

}  // namespace

Status do_in_folder(const std::string& folder, std::chrono::milliseconds patience, std::function<Status()> work) {
  {
    const std::scoped_lock lock(flight_locks().late_folders);
    if (late_folders().contains({getpid(), folder})) return no_answer(folder);
  }
  const std::shared_ptr<FolderWork> shared(new FolderWork{.folder = folder, .work = std::move(work)});
  try {
    const SignalsBlocked blocked;
    std::thread([shared] { do_and_tell(*shared); }).detach();
  } catch (const std::system_error&) {
    return shared->work();  // a folder that answers is the rule
  }
  std::unique_lock lock(shared->mutex);
  if (shared->changed.wait_for(lock, patience, [&] { return shared->result.has_value(); }))
    return std::move(*shared->result);
  const std::scoped_lock lock_late(flight_locks().late_folders);
  shared->late = late_folders().emplace(getpid(), folder);
  return no_answer(folder);
}

std::string flight_folder() {
  KnownFolder& known = known_folder();
  const std::scoped_lock lock(flight_locks().known_folder);
  look_up(known);
  return known.path;
}

Result<std::string> make_flight_folder() {
  const std::string path = flight_folder();
  if (path.empty())
    return fail(Code::invalid_argument,
                "there is no file name for the flight recorder. Give one, or set STRAIT_FLIGHT_RECORDER to a folder");
  STRAIT_TRY(make_folder(path));
  return path;
}

Status write_flight_file(const std::string& path, int rank, const std::string& text) {
  const std::string unfinished = path + ".part-" + std::to_string(rank);
  const WritesRaiseNoSignal no_signal;
  errno = 0;
  std::ofstream file(unfinished, std::ios::trunc);
  const bool opened = file.is_open();
  if (opened) file << text << std::flush;
  file.close();
  int problem = file ? 0 : errno != 0 ? errno : EIO;
  if (problem == 0 && std::rename(unfinished.c_str(), path.c_str()) != 0) problem = errno;
  if (problem == 0) return {};
  if (opened) std::remove(unfinished.c_str());
  return fail_to_write("cannot write the flight recorder's file " + path, problem);
}

Status check_flight_folder(const std::string& folder) {
  STRAIT_TRY(make_folder(folder));
  return check_writable(folder);
}

void prepare_flight_folder(const Deadline& deadline, Status (*check)(const std::string& folder)) {
  KnownFolder& known = known_folder();
  std::string path;
  {
    const std::scoped_lock lock(flight_locks().known_folder);
    look_up(known);
    if (known.path.empty() || known.is_prepared) return;
    known.is_prepared = true;
    path = known.path;
  }
  const std::int64_t left_ms = deadline.remaining_ms();
  const std::chrono::milliseconds fair(std::max(left_ms / 10, std::min(least_patience_ms, left_ms / 2)));
  const Status checked = do_in_folder(path, std::min(folder_patience, fair), [path, check] { return check(path); });
  if (checked) return;
  const bool is_late = checked.error().code == Code::timeout;
  log_warn(-1, std::string("the flight recorder's files ") + (is_late ? "may" : "will") +
                   " be lost: " + checked.error().message);
}

}  // namespace strait
