// What `strait trace` says of splits and registrations that hang.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <functional>

#include "job.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

namespace strait::trace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SetUp : public ::testing::Test {
 protected:
  SetUp() { setenv("STRAIT_FLIGHT_RECORDER", folder_.c_str(), 1); }
  ~SetUp() override { unsetenv("STRAIT_FLIGHT_RECORDER"); }
  /// Waits until there are so many files, or for 10 s.
  void await_files(std::size_t wanted) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (files() != wanted && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(files(), wanted);
  }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      count += entry.path().extension() == ".json" ? 1 : 0;
    return count;
  }
  /// Returns what is said where one rank of three does not make the call.
  std::string said_without_rank_1(const std::string& name,
                                  const std::function<void(straitComm_t comm, int rank)>& call) {
    std::string said;
    strait::testing::run_as_threads(3, [&](straitComm_t comm, int rank, int) {
      STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
      if (rank == 1) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        do {
          raise(SIGUSR1);  // again until the others have waited for long enough
          wait_a_while();
          const auto recorded = read_files({folder_});
          if (recorded) said = report(*recorded, false);
        } while (!::testing::Value(said, names_rank_1(name)) && std::chrono::steady_clock::now() < deadline);
        await_files(5);
      }
      call(comm, rank);
    });
    return said;
  }
  static ::testing::Matcher<std::string> names_rank_1(const std::string& call) {
    return AllOf(HasSubstr("#1 barrier   in " + call + ", for "), HasSubstr("\nIn " + call + ": rank 0 ("),
                 HasSubstr("), rank 2 ("), HasSubstr("\nBehind: rank 1 ("),
                 HasSubstr(") has not called " + call + ", as others did "), Not(HasSubstr("Behind: rank 0")),
                 Not(HasSubstr("Behind: rank 2")), Not(HasSubstr("No rank is behind")), Not(HasSubstr("Cannot tell")));
  }
  testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(SetUp, ARankThatDoesNotSplitIsBehind) {
  const std::string said = said_without_rank_1("straitCommSplit", [](straitComm_t comm, int rank) {
    straitComm_t part = nullptr;
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, rank, &part, nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(part));
  });
  EXPECT_THAT(said, names_rank_1("straitCommSplit"));
}

TEST_F(SetUp, ARankThatDoesNotRegisterIsBehind) {
  const std::string said = said_without_rank_1("straitCommRegister", [](straitComm_t comm, int) {
    int value = 0;
    void* handle = nullptr;
    STRAIT_EXPECT_OK(straitCommRegister(comm, &value, sizeof value, &handle));
    STRAIT_EXPECT_OK(straitCommDeregister(comm, handle));
  });
  EXPECT_THAT(said, names_rank_1("straitCommRegister"));
  await_files(3);  // those of calls that have succeeded go
}

TEST_F(SetUp, AFileOfAFailedInitGoesAtTheNextSignal) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  strait::testing::run_as_threads(1, [&](straitComm_t, int, int) {  // from now on there is a handler
    std::jthread failing([&] {
      straitConfig_t config = strait::testing::test_config();
      config.init_timeout_ms = 1000;
      straitComm_t comm = nullptr;
      EXPECT_EQ(straitCommInitRank(&comm, 2, &id, 0, &config), straitTimeout);  // rank 1 does not come
    });
    wait_a_while();
    raise(SIGUSR1);
    failing.join();
    await_files(2);  // after a failure it stays
    raise(SIGUSR1);
    await_files(1);
  });
}

RankInInit in_split(int rank, double since_us, double until_us) {
  RankInInit init;
  init.call = "straitCommSplit";
  init.awaits_calls = true;
  init.communicator = "0000000000abcdef";
  init.rank_there = rank;
  init.began_unix_us = init.awaits_since_unix_us = since_us;
  init.unix_us = until_us;
  return init;
}

/// Ranks 0 and 1 have files.
class SetUpVerdictOfThree : public ::testing::Test {
 protected:
  void SetUp() override {
    Job job(3);
    for (std::uint32_t rank = 0; rank < 3; ++rank) job.run(rank, 1);
    job.dump(0);
    job.dump(1);
    const auto flights = flights_in(job.folder());
    ASSERT_TRUE(flights) << flights.error().message;
    flight_ = flights->front();
    now_us_ = flight_.unix_us;
  }
  Flight flight_;
  double now_us_ = 0;
};

TEST_F(SetUpVerdictOfThree, DependsOnWhatIsKnownOfTheOthers) {
  const Flight& flight = flight_;
  const double now_us = now_us_, seen_us = flight.ranks[1].file_unix_us;
  EXPECT_THAT(report(flight, false, {in_split(0, now_us - 3e6, now_us)}),
              AllOf(HasSubstr("in straitCommSplit, for 3.0 s\n"), HasSubstr("In straitCommSplit: rank 0\n"),
                    HasSubstr("Behind: rank 1 has not called straitCommSplit, as others did 3.0 s ago\n"),
                    HasSubstr("Behind: rank 2 has not called straitCommSplit (or wrote no file), as others did")));
  EXPECT_THAT(
      report(flight, false, {in_split(0, seen_us - 300, now_us), in_split(2, seen_us, now_us)}),
      AllOf(HasSubstr("Cannot tell: rank 1 had not called straitCommSplit when last seen, 300.0 us after others "
                      "did\n"),
            Not(HasSubstr("Behind"))));
  // The parts join: who is not in it may be done with it.
  RankInInit of_part = in_split(0, now_us - 3e6, now_us);
  of_part.root = "192.0.2.1:7000";
  of_part.awaits_calls = false;
  EXPECT_THAT(report(flight, false, {of_part}),
              AllOf(HasSubstr("In straitCommSplit: rank 0\n"), Not(HasSubstr("ehind"))));
}

/// A registration meets twice: some ranks return while another one makes the rest wait.
TEST_F(SetUpVerdictOfThree, AccusesNobodyOnceAllRanksHaveCalled) {
  RankInInit late = in_split(2, now_us_ - 3e6, now_us_), early = in_split(1, now_us_ - 3e6, now_us_);
  late.awaits_calls = false;
  EXPECT_THAT(report(flight_, false, {late}),
              AllOf(HasSubstr("In straitCommSplit: rank 2\n"), Not(HasSubstr("ehind")),
                    HasSubstr("Not in it: rank 0, rank 1 (all ranks have called it: done with it, or without")));
  for (const std::optional<bool> awaits_calls : {std::optional(true), std::optional<bool>()}) {
    early.awaits_calls = awaits_calls;
    EXPECT_THAT(report(flight_, false, {early, late}),
                AllOf(HasSubstr("Not in it: rank 0 (not called yet, or done with it, or without a file)\n"),
                      Not(HasSubstr("ehind"))));
  }
}

TEST_F(SetUpVerdictOfThree, FilesOlderThanTheRanksRecordTellNoMore) {
  const RankInInit failed = in_split(0, now_us_ - 9e6, flight_.ranks[0].file_unix_us - 2);
  EXPECT_THAT(report(flight_, false, {failed}), Not(HasSubstr("straitCommSplit")));
  EXPECT_THAT(report(flight_, false, {failed, in_split(1, now_us_ - 3e6, now_us_)}),
              AllOf(HasSubstr("In straitCommSplit: rank 1\n"), Not(HasSubstr("Behind: rank 0")),
                    HasSubstr("Cannot tell: rank 0 was in straitCommSplit before its file was written")));
  EXPECT_THAT(report(flight_, false, {failed, in_split(0, now_us_ - 3e6, now_us_)}),
              HasSubstr("in straitCommSplit, for 3.0 s\n"))
      << "it is in another one";
  const Recorded recorded{.runs = {{.flights = {flight_}, .inits = {failed}}}};
  EXPECT_THAT(report(recorded, false), Not(HasSubstr("straitCommSplit")));
}

}  // namespace
}  // namespace strait::trace
