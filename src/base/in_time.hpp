#pragma once

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

/// Asks what may take for ever (a driver may hold a question up for as long as kernels run) on a thread of its own, so
/// that who asks waits a little at most. From any thread.
class InTime {
 public:
  /// `prepare`: what its thread does first.
  explicit InTime(std::function<void()> prepare = [] {}) : prepare_(std::move(prepare)) {}
  InTime(const InTime&) = delete;
  InTime& operator=(const InTime&) = delete;
  /// Waits for the question that is still open.
  ~InTime() {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
  }

  /// What the question gives, an optional; nothing if that does not come in time, or an earlier one did not and is
  /// still open, or there is no thread to be had. What it refers to must outlive this.
  template <class Question, class Answer = std::invoke_result_t<Question>>
  Answer ask(Question question, std::chrono::milliseconds limit) {
    auto promise = std::make_shared<std::promise<Answer>>();
    std::future<Answer> answer = promise->get_future();
    std::uint64_t number = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !is_asking_ || is_late_; });
      if (is_asking_ || !start()) return std::nullopt;
      is_asking_ = true;
      is_late_ = false;
      number = ++asked_;
      question_ = [this, promise = std::move(promise), question = std::move(question)] {
        Answer result = question();
        {
          const std::scoped_lock asked(mutex_);
          is_asking_ = false;
        }
        changed_.notify_all();
        promise->set_value(std::move(result));
      };
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
  std::function<void()> question_;  ///< that has yet to be asked
  bool is_asking_ = false, ends_ = false;
  bool is_late_ = false;     ///< the question that is asked has not been answered in time
  std::uint64_t asked_ = 0;  ///< questions so far
  std::jthread thread_;      ///< from the first question on; last: it uses the rest
};

}  // namespace strait
