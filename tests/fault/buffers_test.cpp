// After a failed call its buffers belong to the caller again: no other rank may read or write them any more.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/ranks.hpp"

namespace strait::testing {
namespace {

/// Memory for a call's buffer, unmapped at the end, so that a later access by another rank crashes the test.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)) {}
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

/// Another thread aborts rank 0 while calls run, a little later each time.
TEST(AfterAnAbort, BuffersAreTheCallers) {
  constexpr std::size_t count = std::size_t{1} << 19;
  constexpr int ranks = 3;
  for (int turn = 0; turn < 60; ++turn)
    run_as_threads(ranks, [&](straitComm_t comm, int rank, int) {
      std::atomic<bool> is_running = false;
      std::jthread aborting;
      if (rank == 0)
        aborting = std::jthread([&] {
          while (!is_running) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::microseconds(100 * turn));
          STRAIT_EXPECT_OK(straitCommAbort(comm));
        });
      straitResult_t result = straitSuccess;
      {
        const Pages send(count * sizeof(float)), receive(count * sizeof(float));
        is_running = true;
        while (result == straitSuccess)
          result = straitAllReduce(send.data(), receive.data(), count, straitFloat32, straitSum, comm, nullptr);
      }
      EXPECT_EQ(result, straitAborted);
    });
}

}  // namespace
}  // namespace strait::testing
