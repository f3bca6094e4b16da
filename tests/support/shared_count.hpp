#pragma once

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace strait::testing {

/// A counter in memory that a process shares with the children that it forks later.
struct SharedCount {
  std::atomic<int>& value =
      *new (mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
          std::atomic<int>(0);
  SharedCount() = default;
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  ~SharedCount() { munmap(&value, sizeof value); }
};

}  // namespace strait::testing
