#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "bootstrap/init_progress.hpp"

namespace strait {

/// The file that the dumps of an init write. It outlives the init, which does not wait for a dump: a file system may
/// take long, or never answer.
class InitFile {
 public:
  /// Writes the file, unless it has been discarded. To be called by one thread at a time.
  Status write(const std::string& path, int rank, const std::string& text);
  /// Returns the path of the file, which the caller is to remove (and may ask for again if it could not); "": there is
  /// none. What is being written meanwhile goes once it is written. Uses no file.
  std::string discard();

 private:
  std::mutex mutex_;  ///< never held while a file is used
  std::string path_;  ///< of the file that was written last; "": none
  bool is_discarded_ = false;
};

/// What is to be written and logged of an init, which may have ended before that is done.
struct InitDump {
  int rank = -1;
  std::string said;       ///< for the log
  std::string file_name;  ///< in the folder
  std::string text;       ///< of the file
  std::shared_ptr<InitFile> file;
};

/// Which rank makes the call, as far as is known when it begins.
struct InitPlace {
  int rank = -1;  ///< -1: not known yet
  int ranks = 0;  ///< 0: not known yet
  /// The number of the communicator whose ranks all make this call, and whose ranks these are; "": there is none yet.
  std::string communicator{};
};

/// Exists while a rank makes a communicator, or makes another call for which it waits for all ranks to make it. If the
/// process gets SIGUSR1 meanwhile, and STRAIT_FLIGHT_RECORDER names a folder, what the rank waits for is logged and
/// written there (a new communicator has no record yet); `strait trace` reads that, too. Once the call has succeeded
/// the file is removed; after a failure it stays until the next signal, whose files then tell what is the case.
class InitWatch {
 public:
  /// `call`: the function of strait.h, which has that deadline. The first object of a process reports what is wrong
  /// with its environment but is no reason to fail, and begins to listen for the signal. If all ranks of a communicator
  /// make the call, the rank waits for them from now on.
  InitWatch(const char* call, const Deadline& deadline, const InitPlace& place = {});
  ~InitWatch();
  InitWatch(const InitWatch&) = delete;
  InitWatch& operator=(const InitWatch&) = delete;

  InitProgress& progress() { return progress_; }
  /// All ranks of the communicator have made the call; notes what the rank waits for from now on.
  void all_have_called(std::string awaits);
  void succeed() { has_succeeded_ = true; }

  // To be called with the recorders' lock held, so that the object exists.
  /// Returns what the rank waits for.
  InitDump dump();
  /// Returns the file that stays after a failure; null: there is none.
  std::shared_ptr<InitFile> file_left() const { return was_dumped_ && !has_succeeded_ ? file_ : nullptr; }

 private:
  Status remove_file();
  std::string json(const InitProgress::State& state) const;
  std::string file_name(const InitProgress::State& state) const;

  const char* const call_;
  const InitPlace place_;
  const unsigned number_;  ///< among those of the process
  const InitProgress::Clock::time_point began_ = InitProgress::Clock::now();
  const std::shared_ptr<InitFile> file_ = std::make_shared<InitFile>();
  InitProgress progress_;
  std::atomic<bool> awaits_calls_;  ///< whether all ranks of a communicator are to make the call, and some may not have
  bool was_dumped_ = false;
  bool has_succeeded_ = false;
};

}  // namespace strait
