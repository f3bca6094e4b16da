#pragma once

#include <pthread.h>

#include <mutex>

namespace strait {

/// The mutexes of what all flight recorders of a process share, in the order in which they are to be locked.
struct FlightLocks {
  std::mutex recorders;
  std::mutex known_folder;
  std::mutex late_folders;
  void lock() {
    recorders.lock();
    known_folder.lock();
    late_folders.lock();
  }
  void unlock() {
    late_folders.unlock();
    known_folder.unlock();
    recorders.unlock();
  }
};

inline FlightLocks& flight_locks() {
  static auto* const locks = new FlightLocks;  // never destroyed: the threads that dump may outlive main()
  // Another thread may hold one when this process forks; nobody would unlock the child's copy.
  [[maybe_unused]] static const int registered =
      ::pthread_atfork([] { locks->lock(); }, [] { locks->unlock(); }, [] { locks->unlock(); });
  return *locks;
}

}  // namespace strait
