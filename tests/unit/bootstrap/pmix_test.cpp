#include "bootstrap/pmix.hpp"

#include "fake_pmix.hpp"
#include "ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<PmixMeeting> meet(const Wait& wait) {
  return meet_through_pmix(
      0, [] { return create_unique_id(environment_of({})); }, wait);
}

/// While it exists, calls of one kind hang.
class Hang {
 public:
  explicit Hang(bool& hangs) : hangs_(hangs) { set(true); }
  ~Hang() { set(false); }
  Hang(const Hang&) = delete;
  Hang& operator=(const Hang&) = delete;

 private:
  void set(bool hangs) {
    const std::scoped_lock lock(fake_pmix().mutex);
    hangs_ = hangs;
    fake_pmix().changed.notify_all();
  }
  bool& hangs_;
};

/// Calls that were late when nobody waited any more, too, have ended, and left nothing open.
void expect_nothing_open() {
  std::unique_lock lock(fake_pmix().mutex);
  EXPECT_TRUE(fake_pmix().changed.wait_for(lock, std::chrono::seconds(10), [] { return fake_pmix().open == 0; }));
}

TEST(Pmix, AMeeting) {
  const auto met = meet(within_ms(10'000));
  ASSERT_TRUE(met) << met.error().message;
  EXPECT_EQ(met->ranks, 1);
  EXPECT_NE(met->id.root.port, 0);
  expect_nothing_open();
}

TEST(Pmix, AServerThatDoesNotAnswerIsNamedAtTheDeadline) {
  {
    const Hang server(fake_pmix().init_hangs);
    for (int attempt = 0; attempt < 2; ++attempt) {
      const Stopwatch watch;
      EXPECT_THAT(meet(within_ms(200)),
                  FailsWith(Code::timeout, AllOf(HasSubstr("the launcher's PMIx server does not answer"),
                                                 HasSubstr("mpirun"), HasSubstr("STRAIT_ROOT"))));
      EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
    }
  }
  const auto met = meet(within_ms(10'000));
  EXPECT_TRUE(met) << met.error().message;
  expect_nothing_open();
}

TEST(Pmix, OtherRanksHearWhyRankZeroHasNoId) {
  const auto no_id = [] { return fail(Code::invalid_argument, "no such interface"); };
  const auto fails = FailsWith(Code::invalid_argument, "no such interface");
  EXPECT_THAT(meet_through_pmix(0, no_id, within_ms(10'000)), fails);
  EXPECT_THAT(meet_through_pmix(1, no_id, within_ms(10'000)), fails);
  expect_nothing_open();
}

TEST(Pmix, AnAbortEndsTheWaitForTheServer) {
  const std::atomic<bool> abort{true};
  {
    const Hang server(fake_pmix().init_hangs);
    EXPECT_THAT(meet({Deadline::never(), &abort}), FailsWith(Code::aborted, HasSubstr("PMIx_Init")));
  }
  expect_nothing_open();
}

TEST(Pmix, AnEndThatHangsIsLeftAlone) {
  {
    const Hang server(fake_pmix().finalize_hangs);
    const Stopwatch watch;
    const auto met = meet(within_ms(60'000));
    EXPECT_TRUE(met) << met.error().message;
    EXPECT_LT(watch.elapsed(), std::chrono::seconds(10));
    // Else it would call a library that is about to end.
    EXPECT_THAT(meet(within_ms(200)), FailsWith(Code::timeout, HasSubstr("PMIx server does not answer")));
  }
  const auto met = meet(within_ms(10'000));
  EXPECT_TRUE(met) << met.error().message;
  expect_nothing_open();
}

}  // namespace
}  // namespace strait::testing
