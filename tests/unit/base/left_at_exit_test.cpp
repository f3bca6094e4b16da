#include "base/left_at_exit.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace strait {
namespace {

struct Thing {};
void end_all(const std::vector<Thing*>&) {}
using Things = LeftAtExit<Thing, end_all>;

/// A data loader is forked while another thread makes and destroys communicators.
TEST(LeftAtExit, ChildrenForkedDuringAnAddCanUseIt) {
  Things& left = Things::instance();
  std::atomic<bool> stop{false};
  std::thread other([&] {
    Thing thing;
    while (!stop) {
      left.add(thing);
      left.remove(thing);
    }
  });
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // ends a child that waits for ever
      Thing own;
      left.remove(own);  // allocates nothing: an allocator's lock may be held as well
      _exit(0);
    }
    ASSERT_GT(child, 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (status != 0) {
      ADD_FAILURE() << "child " << i << (WIFSIGNALED(status) ? " waited for ever" : " failed");
      break;
    }
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace strait
