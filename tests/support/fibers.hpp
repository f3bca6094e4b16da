#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "support/sanitizers.hpp"

#if defined(STRAIT_UNDER_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(STRAIT_UNDER_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace strait::testing {

/// Functions that run interleaved on one CPU thread. They yield at explicit points, and a seed decides the order.
/// Hundreds of them can wait for one another without a system call.
class Fibers {
 public:
  /// A barrier for `count` fibers, which can be used any number of times.
  class Meeting {
   public:
    explicit Meeting(std::uint32_t count) : count_(count) {}
    void arrive_and_wait() {
      Fibers& all = *current_;
      if (waiting_.size() + 1 == count_) {
        all.runnable_.insert(all.runnable_.end(), waiting_.begin(), waiting_.end());
        waiting_.clear();
        return all.yield();
      }
      waiting_.push_back(all.leave());
      all.next();
    }

   private:
    std::uint32_t count_;
    std::vector<std::uint32_t> waiting_;
  };

  /// Runs `body(i)` for every i < count until all have returned. Calls `resumed(i)` each time that fiber i continues.
  static void run(std::uint32_t count, std::uint32_t seed, const std::function<void(std::uint32_t)>& body,
                  const std::function<void(std::uint32_t)>& resumed) {
    Fibers all(count, seed, body, resumed);
    current_ = &all;
    all.next();  // returns when the last fiber has ended
    current_ = nullptr;
  }
  /// Lets another fiber run, or by chance the same one again. Outside of fibers: yields to other threads.
  static void let_others() { current_ != nullptr ? current_->yield() : std::this_thread::yield(); }

 private:
  static constexpr std::size_t stack_bytes = 128 << 10;
  static constexpr std::uint64_t turns_between_naps = 64;
  static constexpr auto nap = std::chrono::microseconds(50);
  struct Fiber {
    ucontext_t context{};
    void* sanitizer = nullptr;  ///< the sanitizer's state of this fiber
    const void* stack = nullptr;
    std::size_t stack_bytes = 0;
  };

  Fibers(std::uint32_t count, std::uint32_t seed, const std::function<void(std::uint32_t)>& body,
         const std::function<void(std::uint32_t)>& resumed)
      : body_(body), resumed_(resumed), fibers_(count + 1), caller_(count), running_(count), random_(seed * 2 + 1) {
    stacks_ =
        mmap(nullptr, count * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks_ == MAP_FAILED) {
      std::perror("no memory for the stacks of a block's threads");
      std::abort();
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      Fiber& fiber = fibers_[i];
      getcontext(&fiber.context);
      fiber.stack = fiber.context.uc_stack.ss_sp = static_cast<std::byte*>(stacks_) + i * stack_bytes;
      fiber.stack_bytes = fiber.context.uc_stack.ss_size = stack_bytes;
      makecontext(&fiber.context, &Fibers::enter, 0);
#ifdef STRAIT_UNDER_THREAD_SANITIZER
      fiber.sanitizer = __tsan_create_fiber(0);
#endif
      runnable_.push_back(i);
    }
#ifdef STRAIT_UNDER_THREAD_SANITIZER
    fibers_[caller_].sanitizer = __tsan_get_current_fiber();
#endif
  }
  ~Fibers() {
#ifdef STRAIT_UNDER_THREAD_SANITIZER
    for (std::uint32_t i = 0; i < caller_; ++i) __tsan_destroy_fiber(fibers_[i].sanitizer);
#endif
#ifdef STRAIT_UNDER_ADDRESS_SANITIZER
    ASAN_UNPOISON_MEMORY_REGION(stacks_, caller_ * stack_bytes);  // later mappings here are no stacks
#endif
    munmap(stacks_, caller_ * stack_bytes);
  }
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  static void enter() {
    Fibers& all = *current_;
    all.arrived(nullptr);
    all.body_(all.running_);
    all.leave();
    ++all.ended_;
    all.next(true);
  }
  /// Takes the running fiber off the list of runnable ones and returns its number; it continues when another fiber puts
  /// it back.
  std::uint32_t leave() {
    std::erase(runnable_, running_);
    return running_;
  }
  void yield() {
    // A fiber that waits for another thread's work must not take the CPU time that this thread needs. A plain yield is
    // not enough: it has left threads of a busy machine without a core for minutes. So it sleeps now and then.
    if (++yields_ % (runnable_.size() + 1) == 0) {
      if (++turns_ % turns_between_naps == 0)
        std::this_thread::sleep_for(nap);
      else
        std::this_thread::yield();
    }
    next();
  }
  void next(bool for_good = false) {
    std::uint32_t other = caller_;
    if (!runnable_.empty()) {
      random_ = random_ * 1664525u + 1013904223u;
      other = runnable_[(random_ >> 8) % runnable_.size()];
    } else if (ended_ != caller_) {
      std::fprintf(stderr, "%u threads of a block wait for others that never come\n", caller_ - ended_);
      std::abort();
    }
    if (other != running_) change_to(other, for_good);
  }
  void change_to(std::uint32_t other, bool for_good) {
    Fiber &from = fibers_[running_], &to = fibers_[other];
    void** const kept = for_good ? nullptr : &from.sanitizer;
    running_ = other;
    if (other != caller_) resumed_(other);
#ifdef STRAIT_UNDER_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(kept, to.stack, to.stack_bytes);
#elif defined(STRAIT_UNDER_THREAD_SANITIZER)
    __tsan_switch_to_fiber(to.sanitizer, 0);
#endif
    swapcontext(&from.context, &to.context);
    arrived(kept == nullptr ? nullptr : *kept);
  }
  /// Called on the stack of the fiber that continues, after a switch.
  void arrived([[maybe_unused]] void* kept) {
#ifdef STRAIT_UNDER_ADDRESS_SANITIZER
    Fiber& caller = fibers_[caller_];
    const bool from_caller = caller.stack == nullptr;
    __sanitizer_finish_switch_fiber(kept, from_caller ? &caller.stack : nullptr,
                                    from_caller ? &caller.stack_bytes : nullptr);
#endif
  }

  static inline thread_local Fibers* current_ = nullptr;
  const std::function<void(std::uint32_t)>& body_;
  const std::function<void(std::uint32_t)>& resumed_;
  std::vector<Fiber> fibers_;  ///< the last one stands for the thread that called run()
  std::uint32_t caller_, running_, random_, ended_ = 0;
  std::vector<std::uint32_t> runnable_;
  std::uint64_t yields_ = 0, turns_ = 0;
  void* stacks_;
};

}  // namespace strait::testing
