#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/own_thread.hpp"

namespace strait {

/// Runs questions that may block forever on a thread of its own (a driver may not answer while kernels run), so that
/// the asking thread waits for a limited time only. Callable from any thread.
class TimeLimitedQuestions {
 public:
  /// `prepare` runs first on the thread, before any question.
  explicit TimeLimitedQuestions(std::function<void()> prepare = [] {}) : prepare_(std::move(prepare)) {}
  TimeLimitedQuestions(const TimeLimitedQuestions&) = delete;
  TimeLimitedQuestions& operator=(const TimeLimitedQuestions&) = delete;
  /// Waits until the question that is still running, if any, has been answered.
  ~TimeLimitedQuestions() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
  }

  /// Runs `question`, which returns an optional, and returns its answer. Returns nullopt if the answer does not come
  /// within `limit`, if an earlier question is late and still running, or if the thread cannot be started. If another
  /// thread's question is running and not late, waits for that one first. A late question keeps running, so what it
  /// refers to must outlive this object.
  template <class Question, class Answer = std::invoke_result_t<Question>>
  Answer ask(Question question, std::chrono::milliseconds limit) {
    auto promise = std::make_shared<std::promise<Answer>>();
    std::future<Answer> answer = promise->get_future();
    std::uint64_t number = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !is_asking_ || is_late_; });
      if (is_asking_ || !start()) return std::nullopt;
      question_ = [this, promise = std::move(promise), question = std::move(question)] {
        Answer result = question();
        {
          const std::scoped_lock asked(mutex_);
          is_asking_ = false;
        }
        changed_.notify_all();
        promise->set_value(std::move(result));
      };
      is_asking_ = true;  // after what may throw for want of memory
      is_late_ = false;
      number = ++asked_;
    }
    changed_.notify_all();
    if (answer.wait_for(limit) == std::future_status::ready) return answer.get();
    {
      const std::scoped_lock lock(mutex_);
      if (asked_ == number) is_late_ = true;
    }
    changed_.notify_all();
    return std::nullopt;
  }
  /// Like ask(); if there is no answer, also of a `question` that returned nullopt, asks again until `limit` is over.
  template <class Question, class Answer = std::invoke_result_t<Question>>
  Answer ask_again(const Question& question, std::chrono::milliseconds limit) {
    constexpr std::chrono::milliseconds pause{5};
    const auto end = std::chrono::steady_clock::now() + limit;
    for (auto left = limit;; std::this_thread::sleep_for(std::min(pause, left))) {
      if (Answer answer = ask(question, left)) return answer;
      left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      if (left.count() <= 0) return std::nullopt;
    }
  }

 private:
  bool start() {
    if (thread_.joinable()) return true;
    try {
      thread_ = std::jthread([this] { answer_all(); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }
  void answer_all() {
    is_own_thread = true;
    prepare_();
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || question_; });
      if (!question_) return;
      const auto question = std::exchange(question_, nullptr);
      lock.unlock();
      question();
      lock.lock();
    }
  }

  const std::function<void()> prepare_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> question_;  ///< handed over, not yet taken by the thread
  bool is_asking_ = false, ends_ = false;
  bool is_late_ = false;     ///< the running question has exceeded its limit
  std::uint64_t asked_ = 0;  ///< number of questions so far
  std::jthread thread_;      ///< started by the first question; declared last because it uses the other members
};

}  // namespace strait
