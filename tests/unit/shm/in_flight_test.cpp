// Descriptors in flight between processes. Linux limits their number for users without privileges, such as those in
// containers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "meeting.hpp"
#include "transports/shm/fd_message.hpp"

namespace strait::shm {
namespace {

/// Runs `body` in a child process of a user without privileges.
template <class Body>
pid_t without_privileges(const Body& body) {
  const pid_t child = fork();
  constexpr uid_t nobody = 65534;
  if (child == 0) _exit((geteuid() != 0 || setresuid(nobody, nobody, nobody) == 0) && body() ? 0 : 1);
  return child;
}

bool ended_well(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0;
}

constexpr rlim_t few_files = 64;
void allow_few_files() {
  const rlimit limit{few_files, few_files};
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// Puts more descriptors than `few_files` in flight, which nobody receives.
struct DescriptorsInFlight {
  DescriptorsInFlight() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) return;
    for (int end : {0, 1}) ends[end].reset(fds[end]);
    const std::vector<int> many(max_fds_per_message, ends[0].get());
    for (int i = 0; i < 2; ++i)
      are_sent = send_message(ends[0].get(), std::as_bytes(std::span("many")), many).has_value();
  }
  UniqueFd ends[2];
  bool are_sent = false;
};

bool are_descriptors_in_flight_bounded() {
  return ended_well(without_privileges([] {
    const DescriptorsInFlight many;
    allow_few_files();
    const std::vector<int> one{many.ends[0].get()};
    const Status sent = send_message(one[0], std::as_bytes(std::span("one")), one);
    return many.are_sent && !sent && sent.error().code == Code::in_progress;
  }));
}

/// Lets ranks meet while another process of this user has descriptors in flight for `duration_ms`: too many for rank
/// `short_of_files`, whose limit is low.
void meet_with_descriptors_in_flight(std::uint32_t short_of_files, int duration_ms, std::int64_t deadline_ms,
                                     const std::function<bool(const Result<RendezvousResult>&)>& is_right) {
  Progress* const progress = shared_progress();
  ASSERT_NE(progress, nullptr);
  const pid_t holder = without_privileges([&] {
    const DescriptorsInFlight many;
    progress->in_flight = many.are_sent;
    for (const auto until = Deadline::after_ms(5000); progress->connected < 1 && !until.expired();)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(duration_ms));
    return true;
  });
  for (const auto until = Deadline::after_ms(5000); !progress->in_flight && !until.expired();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(progress->in_flight);
  pid_t ranks[2];
  for (std::uint32_t rank : {0U, 1U})
    ranks[rank] = without_privileges([&] {
      if (rank == short_of_files) allow_few_files();
      RendezvousRequest request = request_of_several(rank, 2, secret_of(getppid()), *progress);
      request.deadline = Deadline::after_ms(rank == short_of_files ? deadline_ms : deadline_ms + 400);
      const auto met = meet(request);
      if (!met) std::fprintf(stderr, "rank %u: %s\n", rank, met.error().message.c_str());
      return rank != short_of_files || is_right(met);
    });
  for (const pid_t rank : ranks) EXPECT_TRUE(ended_well(rank));
  EXPECT_TRUE(ended_well(holder));
  munmap(progress, sizeof(Progress));
}

constexpr const char* not_bounded = "descriptors in flight are not bounded for this user, or root cannot be another";

TEST(Meeting, WaitsWhileTooManyDescriptorsOfItsUserAreInFlight) {
  if (!are_descriptors_in_flight_bounded()) GTEST_SKIP() << not_bounded;
  for (const std::uint32_t short_of_files : {0U, 1U}) {
    const auto begin = std::chrono::steady_clock::now();
    meet_with_descriptors_in_flight(short_of_files, 150, 10'000, [&](const Result<RendezvousResult>& met) {
      return met && std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(150);
    });
  }
}

TEST(Meeting, SaysByTheDeadlineThatTooManyDescriptorsAreInFlight) {
  if (!are_descriptors_in_flight_bounded()) GTEST_SKIP() << not_bounded;
  for (const std::uint32_t short_of_files : {0U, 1U})
    meet_with_descriptors_in_flight(short_of_files, 1000, 500, [&](const Result<RendezvousResult>& met) {
      return !met && met.error().message.find("ulimit -n") != std::string::npos;
    });
}

/// The leader hands out many times as many descriptors as may be in flight at once.
TEST(Meeting, ManyRanksWithoutPrivilegesMeet) {
  constexpr int ranks = 16;
  if (!are_descriptors_in_flight_bounded()) GTEST_SKIP() << not_bounded;
  Progress* const progress = shared_progress();
  ASSERT_NE(progress, nullptr);
  const UniqueFd heap(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<pid_t> processes;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    processes.push_back(without_privileges([&] {
      allow_few_files();
      RendezvousRequest request = request_of_several(rank, ranks, secret_of(getppid()), *progress);
      request.heap_fd = heap.get();
      request.check = [is_slow = rank != 0]() mutable {  // what is sent meanwhile stays in flight
        if (std::exchange(is_slow, false)) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        return Status();
      };
      const auto met = meet(request);
      if (!met) std::fprintf(stderr, "rank %u: %s\n", rank, met.error().message.c_str());
      return met && std::count_if(met->heaps.begin(), met->heaps.end(), [](const UniqueFd& fd) { return bool(fd); }) ==
                        ranks - 1;
    }));
  for (const pid_t process : processes) EXPECT_TRUE(ended_well(process));
  munmap(progress, sizeof(Progress));
}

}  // namespace
}  // namespace strait::shm
