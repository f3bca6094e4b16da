#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

/// With naps.cpp, which replaces the C library's function by which threads sleep, also for libnccl.so.2.
namespace strait::testing {

/// What this thread runs instead of sleeping; null: it sleeps.
extern thread_local const std::function<void()>* in_place_of_naps;

/// The first time that a thread sleeps, as it does in a call that has waited for other ranks for a while. Another
/// thread that knows of it knows that the call is under way, however late the machine has let it begin.
class FirstNap {
 public:
  FirstNap() = default;
  FirstNap(const FirstNap&) = delete;
  FirstNap& operator=(const FirstNap&) = delete;

  /// To be called by the thread that makes the call. This object must outlive it.
  void watch_for_it() { in_place_of_naps = &nap_; }
  void await() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!has_come_ && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(has_come_) << "the call does not wait";
  }

 private:
  std::atomic<bool> has_come_{false};
  const std::function<void()> nap_ = [this] {
    has_come_ = true;
    in_place_of_naps = nullptr;
  };
};

}  // namespace strait::testing
