#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <chrono>

#include "ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using Milliseconds = std::chrono::milliseconds;

/// Memory that forked ranks share with the test.
struct Shared {
  std::atomic<int> ready;
  std::atomic<int> told;
  std::atomic<int> loader;  ///< pid of the forked helper
};

class Processes : public ::testing::Test {
 protected:
  void SetUp() override {
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared{};
  }
  void TearDown() override { ::munmap(shared_, sizeof(Shared)); }

  template <class Body>
  std::vector<pid_t> fork_ranks(int ranks, const Body& body) {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
      pid_t pid = ::fork();
      if (pid == 0) ::_exit(body(rank) ? 0 : 1);
      pids.push_back(pid);
    }
    return pids;
  }
  static bool exits_well(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  void wait_until(const std::atomic<int>& counter, int value) {
    Deadline deadline = Deadline::after_ms(10'000);
    while (counter.load() < value && !deadline.expired()) std::this_thread::sleep_for(Milliseconds(1));
    ASSERT_GE(counter.load(), value);
  }

  Shared* shared_ = nullptr;
};

TEST_F(Processes, JoinAndExchange) {
  UniqueId id = make_id();
  auto pids = fork_ranks(8, [&](int rank) {
    auto channel = join(id, options_of(rank, 8));
    if (!channel) return false;
    for (int other = 0; other < 8; ++other)
      if ((*channel)->peers()[static_cast<std::size_t>(other)].same_process((*channel)->self()) != (other == rank))
        return false;
    auto all = (*channel)->all_gather(as_byte_span(std::to_string(::getpid())), within_ms(10'000));
    return all && text_of(all->at(0)) == std::to_string((*channel)->peers()[0].pid) &&
           (*channel)->barrier(within_ms(10'000));
  });
  for (pid_t pid : pids) EXPECT_TRUE(exits_well(pid));
}

/// As a rank that goes on without the communicator, whose failure it has heard of.
TEST_F(Processes, AnEndThatComesOfAnotherFailureIsToldAsThat) {
  UniqueId id = make_id();
  auto pids = fork_ranks(2, [&](int rank) {
    auto channel = join(id, options_of(rank, 2));
    if (!channel) return false;
    if (rank == 1) ::_exit(0);  // without a goodbye
    (*channel)->set_error_source([] { return Status(fail(Code::remote_error, "rank 2 has died")); });
    std::this_thread::sleep_for(Milliseconds(100));
    const Status told = (*channel)->barrier(within_ms(10'000));
    return !told && told.error().message == "rank 2 has died";
  });
  for (pid_t pid : pids) EXPECT_TRUE(exits_well(pid));
}

/// Ranks wait in a barrier without the victim; it is killed; all others must name it within a second.
void kill_a_rank(int victim, Shared* shared, const std::vector<pid_t>& pids) {
  const Stopwatch watch;
  ::kill(pids[static_cast<std::size_t>(victim)], SIGKILL);
  for (std::size_t rank = 0; rank < pids.size(); ++rank) {
    int status = 0;
    ::waitpid(pids[rank], &status, 0);
    if (static_cast<int>(rank) == victim) continue;
    EXPECT_EQ(status, 0) << "rank " << rank;
  }
  EXPECT_LT(watch.elapsed(), Milliseconds(1000));
  EXPECT_EQ(shared->told.load(), static_cast<int>(pids.size()) - 1);
}

bool is_told_of(const Status& status, int victim, Shared* shared) {
  bool told = !status && status.error().code == Code::remote_error &&
              status.error().message.find("rank " + std::to_string(victim) + " (host") == 0;
  shared->told.fetch_add(told ? 1 : 0);
  return told;
}

TEST_F(Processes, AKilledRankIsNamedByAllOthersAtOnce) {
  for (int victim : {0, 1, 6}) {
    shared_->ready = 0;
    shared_->told = 0;
    UniqueId id = make_id();
    auto pids = fork_ranks(7, [&](int rank) {
      auto channel = join(id, options_of(rank, 7));
      if (!channel || !(*channel)->barrier(within_ms(10'000))) return false;
      shared_->ready.fetch_add(1);
      if (rank == victim) ::pause();
      return is_told_of((*channel)->barrier(within_ms(10'000)), victim, shared_);
    });
    wait_until(shared_->ready, 7);
    kill_a_rank(victim, shared_, pids);
  }
}

TEST_F(Processes, AForkedHelperDoesNotHideTheDeathOfItsRank) {
  UniqueId id = make_id();
  auto pids = fork_ranks(4, [&](int rank) {
    auto channel = join(id, options_of(rank, 4));
    if (!channel || !(*channel)->barrier(within_ms(10'000))) return false;
    if (rank == 3) {
      pid_t loader = ::fork();
      if (loader == 0) {  // inherits the sockets of rank 3, and outlives it
        ::pause();
        ::_exit(0);
      }
      shared_->loader = loader;
    }
    shared_->ready.fetch_add(1);
    if (rank == 3) ::pause();
    return is_told_of((*channel)->barrier(within_ms(10'000)), 3, shared_);
  });
  wait_until(shared_->ready, 4);
  kill_a_rank(3, shared_, pids);
  ::kill(shared_->loader, SIGKILL);
}

TEST_F(Processes, ARankThatDiesWhileJoiningIsNamed) {
  UniqueId id = make_id();
  auto pids = fork_ranks(3, [&](int rank) {  // of 4: they wait for the fourth
    shared_->ready.fetch_add(1);
    return is_told_of(join(id, options_of(rank, 4)).map([](auto&&) {}), 2, shared_);
  });
  wait_until(shared_->ready, 3);
  std::this_thread::sleep_for(Milliseconds(100));
  kill_a_rank(2, shared_, pids);
}

/// The root, in a process of its own, is stopped before the rank's deadline and goes on a little after it.
TEST_F(Processes, ARootThatIsLateStillNamesWhoIsMissing) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto pids = fork_ranks(1, [&](int) {
    auto packed = make_id().pack();
    bool sent = ::write(ends[1], packed.data(), packed.size()) == static_cast<ssize_t>(packed.size());
    if (sent) ::pause();
    return false;
  });
  ::close(ends[1]);  // a child that ends early is an end of file
  std::array<std::byte, unique_id_bytes> packed;
  ASSERT_EQ(::read(ends[0], packed.data(), packed.size()), static_cast<ssize_t>(packed.size()));
  ::close(ends[0]);
  auto id = unpack_unique_id(packed);
  ASSERT_TRUE(id);
  std::thread disturber([&] {
    std::this_thread::sleep_for(Milliseconds(200));
    ::kill(pids[0], SIGSTOP);
    std::this_thread::sleep_for(Milliseconds(250));
    ::kill(pids[0], SIGCONT);
  });
  JoinOptions options = options_of(1, 3);
  options.wait = within_ms(400);
  auto joined = join(*id, options);
  disturber.join();
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, Code::timeout);
  EXPECT_NE(joined.error().message.find("did not join"), std::string::npos) << joined.error().message;
  ::kill(pids[0], SIGKILL);
  exits_well(pids[0]);
}

/// Of those that wait for it nothing is said: they are innocent.
TEST_F(Processes, ARankThatIsStoppedAfterItHasJoinedIsNamed) {
  UniqueId id = make_id();
  const auto stopped = fork_ranks(2, [&](int rank) { return rank == 0 || !join(id, options_of(1, 3)); });
  EXPECT_TRUE(exits_well(stopped[0]));
  Deadline deadline = Deadline::after_ms(10'000);
  while (report_of_root(id.root)->joined < 1 && !deadline.expired()) std::this_thread::sleep_for(Milliseconds(1));
  ::kill(stopped[1], SIGSTOP);
  const std::string who = "nothing is heard from rank 1 (host ";
  for (const Joined& joined : join_all(id, {options_of(0, 3, 800), options_of(2, 3, 800)})) {
    EXPECT_THAT(joined, FailsWith(Code::timeout, ::testing::HasSubstr(who)));
    EXPECT_THAT(joined, FailsWith(Code::timeout, ::testing::HasSubstr("pid " + std::to_string(stopped[1]) + ")")));
    EXPECT_THAT(joined, FailsWith(Code::timeout, ::testing::Not(::testing::HasSubstr("firewall"))));
    EXPECT_THAT(joined, FailsWith(Code::timeout, ::testing::Not(::testing::HasSubstr("rank 2"))));
  }
  ::kill(stopped[1], SIGKILL);
  exits_well(stopped[1]);
}

/// Ends forked children after the destructors of statics, which are constructed later than this, and before a leak
/// checker, which would report what the parent's threads own.
const pid_t test_process = ::getpid();
const int registered = std::atexit([] {
  if (::getpid() != test_process) ::_exit(0);
});

TEST_F(Processes, AChildThatForksFromARootEndsNormally) {
  UniqueId id = make_id();
  pid_t child = ::fork();
  if (child == 0) std::exit(0);  // runs the destructors of statics, among them the registry of roots
  EXPECT_EQ(registered, 0);
  EXPECT_TRUE(exits_well(child));
  EXPECT_TRUE(join(id, options_of(0, 1)));
}

/// The child's new thread gets the stack, and with it the handle, of the root's thread, which only the parent had.
TEST_F(Processes, AChildsThreadsAreNotTakenForAnInheritedRoots) {
  UniqueId id = make_id();
  EXPECT_TRUE(join(id, options_of(0, 1)));
  Deadline deadline = Deadline::after_ms(10'000);
  while (!report_of_root(id.root)->finished && !deadline.expired()) std::this_thread::sleep_for(Milliseconds(1));
  auto pids = fork_ranks(1, [&](int) {
    std::atomic<bool> stop{false};
    std::thread own([&] {
      while (!stop.load()) std::this_thread::sleep_for(Milliseconds(1));
    });
    UniqueId another = make_id();  // forgets roots that have finished
    stop.store(true);
    own.join();
    return static_cast<bool>(join(another, options_of(0, 1)));
  });
  for (pid_t pid : pids) EXPECT_TRUE(exits_well(pid));
}

}  // namespace
}  // namespace strait::testing
