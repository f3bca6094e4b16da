#include "base/time_limited_questions.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <latch>

#include "support/stopwatch.hpp"

namespace {
thread_local bool can_start_threads = true;
}  // namespace

/// Replaces the C library's function.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*body)(void*), void* argument) noexcept {
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return can_start_threads ? real(thread, attributes, body, argument) : EAGAIN;
}

namespace strait::testing {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

TEST(TimeLimitedQuestions, Answers) {
  TimeLimitedQuestions questions;
  EXPECT_EQ(questions.ask([] { return std::optional(3); }, seconds(10)), 3);
  EXPECT_EQ(questions.ask([] { return std::optional<int>(); }, seconds(10)), std::nullopt);
}

/// On such a thread, no state of the user's need be restored afterwards.
TEST(TimeLimitedQuestions, AsksOnAThreadOfStraits) {
  TimeLimitedQuestions questions;
  EXPECT_EQ(questions.ask([] { return std::optional(is_own_thread); }, seconds(10)), true);
  EXPECT_FALSE(is_own_thread);
}

TEST(TimeLimitedQuestions, PreparesItsThreadBeforeTheFirstQuestion) {
  std::thread::id prepared;
  TimeLimitedQuestions questions([&] { prepared = std::this_thread::get_id(); });
  for (int turn = 0; turn < 2; ++turn)
    EXPECT_EQ(questions.ask([&] { return std::optional(prepared == std::this_thread::get_id()); }, seconds(10)), true);
}

/// ask() must not throw, because the caller may be a thread on which nobody catches exceptions.
TEST(TimeLimitedQuestions, KnowsNothingWhereThereIsNoThread) {
  TimeLimitedQuestions questions;
  const auto question = [] { return std::optional(3); };
  can_start_threads = false;
  std::optional<int> answer;
  EXPECT_NO_THROW(answer = questions.ask(question, seconds(10)));
  can_start_threads = true;
  EXPECT_EQ(answer, std::nullopt);
  EXPECT_EQ(questions.ask(question, seconds(10)), 3);
}

/// Neither the caller nor later callers wait for a question that hangs. The destructor does, until the question ends.
TEST(TimeLimitedQuestions, DoesNotWaitForWhatHangs) {
  std::latch ends(1);
  std::atomic<bool> ended{false};
  std::jthread helper;
  {
    TimeLimitedQuestions questions;
    const auto hangs = [&] {
      ends.wait();
      ended = true;
      return std::optional(1);
    };
    const Stopwatch watch;
    EXPECT_EQ(questions.ask(hangs, milliseconds(50)), std::nullopt);
    EXPECT_GE(watch.elapsed() + watch.stalled(), milliseconds(50));  // stalls of the machine count as waiting
    for (int i = 0; i < 100; ++i) EXPECT_EQ(questions.ask([] { return std::optional(2); }, seconds(10)), std::nullopt);
    EXPECT_LT(watch.elapsed(), seconds(5));
    helper = std::jthread([&] {
      std::this_thread::sleep_for(milliseconds(100));
      ends.count_down();
    });
  }
  EXPECT_TRUE(ended);
}

/// If several threads ask at the same time, each gets its answer.
TEST(TimeLimitedQuestions, WaitsForAnEarlierQuestion) {
  TimeLimitedQuestions questions;
  std::atomic<int> answered{0};
  {
    std::vector<std::jthread> threads;
    for (int number = 0; number < 8; ++number)
      threads.emplace_back([&, number] {
        const auto question = [number] {
          std::this_thread::sleep_for(milliseconds(10));
          return std::optional(number);
        };
        if (questions.ask(question, seconds(10)) == number) ++answered;
      });
  }
  EXPECT_EQ(answered, 8);
}

TEST(TimeLimitedQuestions, AnswersAgainAfterOneThatCameLate) {
  TimeLimitedQuestions questions;
  const auto late = [] {
    std::this_thread::sleep_for(milliseconds(60));
    return std::optional(1);
  };
  EXPECT_EQ(questions.ask(late, milliseconds(1)), std::nullopt);
  std::optional<int> answer;
  for (const Stopwatch watch; !answer && watch.elapsed() < seconds(10); std::this_thread::sleep_for(milliseconds(1)))
    answer = questions.ask([] { return std::optional(2); }, seconds(1));
  EXPECT_EQ(answer, 2);
}

}  // namespace
}  // namespace strait::testing
