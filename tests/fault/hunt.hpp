#pragma once

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.hpp"
#include "bootstrap/channel.hpp"
#include "fault/hunted_call.hpp"
#include "fault/rank_processes.hpp"

/// Hunts for hangs and false reports. In each round, ranks make random calls until one of them, at a random moment,
/// dies, aborts, leaves, makes a different call, stays away or stands still. Every other rank must be told what
/// happened, with the right rank's name and in time; every call that ended with success must have the right bits. A
/// round follows from its seed alone.
namespace strait::testing::hunt {

enum class Fault : std::uint8_t { dies, exits, aborts, leaves, differs, stays_away, stands_still };
inline constexpr std::array<const char*, 7> fault_names{"dies",    "exits",      "aborts",      "leaves",
                                                        "differs", "stays away", "stands still"};

/// What the kind of ranks under test allows.
struct Limits {
  CallLimits calls;
  std::chrono::milliseconds told_within{1000};     ///< to report a failure that needs no deadline to be noticed
  std::chrono::milliseconds left_within{1000};     ///< to report that a rank has left
  std::chrono::milliseconds differs_within{1000};  ///< to report that a rank made a different call
  std::int64_t deadline_ms = 400, join_deadline_ms = 5000;  ///< configured where a rank is missing
};

struct Round {
  Limits limits;
  std::uint64_t seed = 0;
  Fault fault = Fault::dies;
  int victim = 0;
  std::uint64_t call = 0;           ///< number of the victim's call at which the fault happens
  std::chrono::microseconds after;  ///< from the beginning of that call to the fault, if it comes from another thread
  bool shrinks = false;             ///< afterwards the others make a communicator without the victim
  bool keeps_others = false;        ///< the others have such a communicator from the start

  straitConfig_t config() const {
    straitConfig_t config = test_config();
    if (is_missed()) config.timeout_ms = limits.deadline_ms;
    if (is_missed() || fault == Fault::differs) config.init_timeout_ms = limits.join_deadline_ms;
    return config;
  }
  bool is_missed() const { return fault == Fault::stays_away || fault == Fault::stands_still; }
  bool kills() const { return fault == Fault::dies || fault == Fault::exits; }
};

inline Round make_round(std::uint64_t seed, const Limits& limits) {
  Draws draws(seed);
  Round round{.limits = limits, .seed = seed, .after = {}};
  round.fault = static_cast<Fault>(draws.below(fault_names.size()));
  round.victim = static_cast<int>(draws.below(static_cast<std::uint64_t>(limits.calls.ranks)));
  round.call = draws.below(12);
  round.after = std::chrono::microseconds(draws.below(2) == 0 ? 0 : draws.below(1000));
  round.shrinks = limits.calls.ranks > 2 && draws.below(2) == 0;
  round.keeps_others = limits.calls.ranks > 2 && draws.below(2) == 0;
  return round;
}

inline std::string describe(const Round& round) {
  return "seed " + std::to_string(round.seed) + ": of " + std::to_string(round.limits.calls.ranks) + " ranks number " +
         std::to_string(round.victim) + " " + fault_names[static_cast<std::size_t>(round.fault)] + " at its call " +
         std::to_string(round.call) + " (" + describe(make_call(round.seed, round.call, round.limits.calls)) + ")";
}

/// What the ranks of a round know of one another by other means than those under test. In shared memory.
struct Shared {
  std::atomic<Clock::time_point> happened{Clock::time_point{}};
  std::atomic<int> told{0};  ///< number of ranks that know of the failure
};

/// Injects the round's fault into the victim. begin() is called when the victim's call begins; it returns false if the
/// victim makes no more calls.
class Trouble {
 public:
  bool begin(const Round& round, straitComm_t& comm, Shared& shared) {
    const auto others_are_told = [&shared, others = round.limits.calls.ranks - 1] {
      for (int i = 0; i < 30'000 && shared.told.load() < others; ++i) std::this_thread::sleep_for(milliseconds(1));
    };
    const auto beside = [&](const std::function<void()>& happens) {
      beside_ = std::jthread([&shared, after = round.after, happens] {
        std::this_thread::sleep_for(after);
        shared.happened.store(Clock::now());
        happens();
      });
      return true;
    };
    switch (round.fault) {
      case Fault::dies:
        return beside([] { raise(SIGKILL); });
      case Fault::exits:
        return beside([] { _exit(0); });
      case Fault::aborts:
        return beside([comm] { STRAIT_EXPECT_OK(straitCommAbort(comm)); });
      default:
        shared.happened.store(Clock::now());
    }
    if (round.fault == Fault::differs) return true;
    if (round.fault == Fault::stands_still) return raise(SIGSTOP) == 0;
    if (round.fault == Fault::leaves) STRAIT_EXPECT_OK(straitCommDestroy(std::exchange(comm, nullptr)));
    others_are_told();
    return false;
  }

 private:
  std::jthread beside_;
};

/// Makes some calls among the ranks other than the victim; its failure must not affect them.
template <class Side>
void go_on(Side& side, straitComm_t comm, const Round& round) {
  if (comm == nullptr) return;
  int rank = -1;
  STRAIT_EXPECT_OK(straitCommUserRank(comm, &rank));
  CallLimits limits = round.limits.calls;
  --limits.ranks;
  for (std::uint64_t number = 1000; number < 1006; ++number) {
    const auto call = make_call(round.seed, number, limits);
    EXPECT_EQ(run_checked(side, call, comm, rank), straitSuccess) << straitGetLastError(comm);
  }
}

/// What a rank does in a round. `Side` holds its data and makes the calls on it (for example, HostSide).
template <class Side>
void run_rank(int rank, const straitUniqueId& id, const Round& round, Shared& shared, Report& report) {
  Side side(rank, round);
  straitComm_t comm = join(id, rank, round.limits.calls.ranks, report, side.config());
  if (comm == nullptr) return;
  straitComm_t others = nullptr;
  if (round.keeps_others) {
    STRAIT_EXPECT_OK(straitCommSplit(comm, rank == round.victim ? -1 : 0, 0, &others, nullptr));
    // An abort of the whole communicator would end the split on ranks that have not finished it. So all ranks meet
    // here.
    straitComm_t none = nullptr;
    STRAIT_EXPECT_OK(straitCommSplit(comm, -1, 0, &none, nullptr));
  }
  Trouble trouble;
  straitResult_t result = straitSuccess;
  bool was_set_up = false;
  for (std::uint64_t number = 0; result == straitSuccess; ++number) {
    auto call = make_call(round.seed, number, round.limits.calls);
    if (rank == round.victim && number == round.call) {
      if (round.fault == Fault::differs) call = differing(call);
      if (!trouble.begin(round, comm, shared)) break;
    }
    result = run_checked(side, call, comm, rank);
    was_set_up = call.is_set_up();
  }
  if (result == straitSuccess) {  // the victim itself, where it gets no error
    if (comm != nullptr) STRAIT_EXPECT_OK(straitCommDestroy(comm));
    return;
  }
  report.fail_with(result, straitGetLastError(was_set_up ? nullptr : comm));
  shared.told.fetch_add(1);
  if (!was_set_up) {  // a failed set-up call leaves the communicator usable
    EXPECT_EQ(straitBarrier(comm, side.stream()), result) << "the error is sticky";
    straitResult_t kept = straitSuccess;
    STRAIT_EXPECT_OK(straitCommGetAsyncError(comm, &kept));
    EXPECT_EQ(kept, result);
  }
  go_on(side, others, round);
  if (round.shrinks && round.kills()) {
    straitComm_t smaller = nullptr;
    STRAIT_EXPECT_OK(straitCommShrink(comm, &round.victim, 1, &smaller, nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(std::exchange(comm, smaller)));
    go_on(side, smaller, round);
  }
  for (straitComm_t left : {others, comm})
    if (left != nullptr) STRAIT_EXPECT_OK(straitCommDestroy(left));
}

/// Checks what a rank reported. `since`: when the event that it must report happened.
inline void check(const Round& round, int rank, const Report& report, Clock::time_point since, const Stopwatch& watch) {
  using ::testing::HasSubstr;
  const std::string victim = "rank " + std::to_string(round.victim), message = report.message;
  const auto expect = [&](straitResult_t result, const std::string& words, milliseconds within) {
    EXPECT_EQ(report.result, result) << message;
    EXPECT_THAT(message, HasSubstr(words));
    EXPECT_LT(report.failed_at - since - watch.stalled(), within) << message;
  };
  SCOPED_TRACE("rank " + std::to_string(rank));
  if (round.kills()) {
    expect(straitRemoteError, victim, round.limits.told_within);
  } else if (round.fault == Fault::aborts) {
    const bool of_set_up = message.find("while it was made") != std::string::npos;  // while a split made a communicator
    expect(straitAborted, (of_set_up ? "aborted while it was made, on " : "aborted by ") + victim,
           round.limits.told_within);
  } else if (round.fault == Fault::leaves) {
    expect(straitRemoteError, victim, round.limits.left_within);
  } else if (round.fault == Fault::differs) {
    const bool of_set_up =
        message.find("called a split") != std::string::npos || message.find("registered memory") != std::string::npos;
    expect(straitMismatch, "ranks made different calls",
           of_set_up ? milliseconds(round.limits.join_deadline_ms) + round.limits.told_within
                     : round.limits.differs_within);
    EXPECT_THAT(message, HasSubstr(victim));  // the other ranks all make the same call
  } else {
    const bool in_set_up = message.find(Channel::unfinished_text) != std::string::npos;
    const milliseconds deadline(in_set_up ? round.limits.join_deadline_ms : round.limits.deadline_ms);
    expect(straitTimeout, "deadline", deadline + round.limits.told_within);
    EXPECT_TRUE(rank == round.victim || report.failed_at - since > deadline / 2) << message;
  }
}

template <class Side>
void run_round(const Round& round) {
  SCOPED_TRACE(describe(round));
  const int ranks = round.limits.calls.ranks, victim = round.victim;
  auto* const shared =
      new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  {
    RankProcesses processes(ranks, [&](int rank, const straitUniqueId& id, Report& report) {
      run_rank<Side>(rank, id, round, *shared, report);
    });
    const Stopwatch watch;  // it starts a thread, so it must come after the forks
    EXPECT_TRUE(
        processes.await([&](int rank) { return rank == victim || processes.report(rank).failed.load() != 0; }, 60'000));
    if (round.kills()) processes.end(victim, 5000);
    const auto goes_on = Clock::now();
    if (round.fault == Fault::stands_still) processes.signal(victim, SIGCONT);
    processes.expect_all_end_well(30'000);
    const Clock::time_point happened = shared->happened;
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != victim) check(round, rank, processes.report(rank), happened, watch);
    if (round.fault == Fault::aborts || round.fault == Fault::differs)
      check(round, victim, processes.report(victim), happened, watch);
    if (round.fault == Fault::stands_still) check(round, victim, processes.report(victim), goes_on, watch);
  }
  munmap(shared, sizeof(Shared));
}

/// Runs rounds until STRAIT_HUNT_SECONDS have passed or one fails. Seeds count up from STRAIT_HUNT_SEED.
template <class Side>
void run(Limits limits, double usual_seconds) {
  const auto number = [](const char* name, double usual) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::atof(text) : usual;
  };
  const std::chrono::duration<double> time(number("STRAIT_HUNT_SECONDS", usual_seconds));
  const auto first = static_cast<std::uint64_t>(number("STRAIT_HUNT_SEED", 1));
  const auto began = Clock::now();
  std::uint64_t rounds = 0;
  do run_round<Side>(make_round(first + rounds++, limits));
  while (Clock::now() - began < time && !::testing::Test::HasFailure());
  std::printf("%llu rounds of %d ranks, from seed %llu on\n", static_cast<unsigned long long>(rounds),
              limits.calls.ranks, static_cast<unsigned long long>(first));
}

}  // namespace strait::testing::hunt
