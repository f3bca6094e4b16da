// Where file descriptors run out. A program of its own: roots of other tests would still close some, and each of those
// is room for one rank more.
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <functional>

#include "ranks.hpp"

namespace strait::testing {
namespace {

/// Runs in a child, so that its limits and descriptors are its own.
int exit_code_of(const std::function<bool()>& body) {
  pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/// Leaves room for this many more descriptors; gives the limit that was there before. Whoever started this process may
/// have left it some with high numbers, so the free ones are counted, by taking them.
rlimit limit_descriptors(std::size_t spare) {
  std::vector<UniqueFd> probes;
  while (probes.size() <= spare) probes.emplace_back(::dup(0));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit limit{static_cast<rlim_t>(probes.back().get()), before.rlim_max};
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  return before;
}

bool fails_for_want_of_descriptors(const Status& status) {
  return !status && status.error().code == Code::system_error &&
         status.error().message.find("ulimit -n") != std::string::npos;
}

TEST(Descriptors, RunningOutIsAnErrorWithARemedy) {
  UniqueId id = make_id();
  EXPECT_EQ(
      exit_code_of([] {
        limit_descriptors(0);
        return fails_for_want_of_descriptors(start_root({address_of("127.0.0.1"), {}, false}, {}).map([](auto) {}));
      }),
      0);
  EXPECT_EQ(exit_code_of([&] {
              JoinOptions options = options_of(0, 2);
              limit_descriptors(0);
              return fails_for_want_of_descriptors(join(id, options).map([](auto&&) {}));
            }),
            0);
}

/// What a rank's forked child keeps open would hide the rank's death from ranks of other hosts.
TEST(Descriptors, AForkedChildClosesItsCopiesAlsoWhereNoneAreLeft) {
  EXPECT_EQ(exit_code_of([] {
              int ends[2];
              if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
              Socket rank{UniqueFd(ends[0])};
              limit_descriptors(0);
              const pid_t loader = ::fork();
              if (loader == 0) ::pause();
              rank = Socket();
              pollfd peer{ends[1], POLLIN, 0};
              const bool is_told = ::poll(&peer, 1, 2000) == 1 && (peer.revents & POLLHUP) != 0;
              ::kill(loader, SIGKILL);
              ::waitpid(loader, nullptr, 0);
              return is_told;
            }),
            0);
}

/// It has joined, but cannot accept the connection of its neighbour: both ranks are told why.
TEST(Descriptors, ARankWithoutOneForItsNeighbourSaysSo) {
  UniqueId id = make_id();
  const auto is_told = [&](int rank) {
    const auto joined = join(id, options_of(rank, 2, 1000));
    if (joined) return false;
    const std::string& text = joined.error().message;
    const bool is_named = text.find("rank 0 (host ") != std::string::npos &&
                          text.find("cannot accept a connection") != std::string::npos &&
                          text.find("ulimit -n") != std::string::npos && text.find("firewall") == std::string::npos;
    if (!is_named) ::fprintf(stderr, "rank %d: %s\n", rank, text.c_str());
    return is_named;
  };
  std::thread other([&] { EXPECT_TRUE(is_told(1)); });
  EXPECT_EQ(exit_code_of([&] {
              limit_descriptors(3);  // to the root, for neighbours to come, and for a shrink
              return is_told(0);
            }),
            0);
  other.join();
}

/// Whether the text names a lack of descriptors, and a firewall at most after that.
bool blames_descriptors(const std::string& text) {
  const auto place = text.find("file descriptors left");
  return place != std::string::npos && place < text.find("firewall");
}

/// The ranks that it has, the others, and the log say what is likeliest.
TEST(Descriptors, AStarvedRootIsNamedByAll) {
  UniqueId id = make_id();
  std::atomic<bool> starved{false};
  rlimit before{};
  std::vector<std::thread> ranks;
  std::vector<int> told(2);
  // The ranks are processes, so that only the root runs out: it has room for one of them.
  for (int i = 0; i < 2; ++i)
    ranks.emplace_back([&, i] {
      while (!starved.load()) std::this_thread::yield();
      told[static_cast<std::size_t>(i)] = exit_code_of([&] {
        ::setrlimit(RLIMIT_NOFILE, &before);
        auto joined = join(id, options_of(i, 3, 2000));
        if (!joined && blames_descriptors(joined.error().message)) return true;
        ::fprintf(stderr, "rank %d: %s\n", i, joined ? "has joined" : joined.error().message.c_str());
        return false;
      });
    });
  ::testing::internal::CaptureStderr();
  before = limit_descriptors(1);
  starved.store(true);
  for (std::thread& rank : ranks) rank.join();
  ::setrlimit(RLIMIT_NOFILE, &before);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told, (std::vector{0, 0})) << log;
  EXPECT_NE(log.find("ulimit -n"), std::string::npos) << log;
}

}  // namespace
}  // namespace strait::testing
