#pragma once

#include <chrono>
#include <string>

#include "base/error.hpp"
#include "bootstrap/init_progress.hpp"

namespace strait {

/// Exists while a rank makes a communicator. If the process gets SIGUSR1 meanwhile, and STRAIT_FLIGHT_RECORDER names a
/// folder, what the rank waits for is logged and written there (the communicator itself has no record yet); `strait
/// trace` reads that, too. Once the communicator is complete the file is removed; after a failure it stays.
class InitWatch {
 public:
  /// `call`: the function of strait.h that makes the communicator. The first object of a process reports what is wrong
  /// with its environment but is no reason to fail, and begins to listen for the signal.
  explicit InitWatch(const char* call);
  ~InitWatch();
  InitWatch(const InitWatch&) = delete;
  InitWatch& operator=(const InitWatch&) = delete;

  InitProgress& progress() { return progress_; }
  void succeed() { has_succeeded_ = true; }

  // To be called by the thread that dumps, which sees to it that the object exists.
  /// Logs what the rank waits for, and writes it into the folder.
  Status dump();
  int rank() const { return progress_.state().rank; }

 private:
  std::string json(const InitProgress::State& state) const;
  std::string file_name(const InitProgress::State& state) const;

  const char* const call_;
  const unsigned number_;  ///< among those of the process
  const InitProgress::Clock::time_point began_ = InitProgress::Clock::now();
  InitProgress progress_;
  std::string file_;  ///< what dump() has written last; read when no thread dumps it any more
  bool has_succeeded_ = false;
};

}  // namespace strait
