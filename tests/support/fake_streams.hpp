#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/copy_engine/stream_driver.hpp"

/// CUDA streams without a GPU: each is a thread that executes its commands in order on host memory, with random delays.
namespace strait::testing {

class FakeStreams final : public copy_engine::StreamDriver {
 public:
  struct Options {
    std::uint64_t seed = 0;
    bool one_queue = false;  ///< all streams share one hardware queue, as with CUDA_DEVICE_MAX_CONNECTIONS=1
    bool slow = true;        ///< commands are delayed at random
  };
  explicit FakeStreams(const Options& options) : options_(options), random_(options.seed) {}

  /// Makes a copy or memory operation on these addresses fail the test: they are the host's view of memory that the
  /// device has at other addresses.
  void forbid(const std::byte* begin, std::size_t size_bytes) { forbidden_ = {begin, begin + size_bytes}; }
  /// Makes the command after `commands` more, and all that follow it, fail.
  void fail_after(int commands) { commands_left_ = commands; }
  int commands() const { return commands_; }
  /// Sets a function that a stream's thread calls before each of its memory operations.
  void set_hook(std::function<void(const copy_engine::MemoryOperation&)> hook) { hook_ = std::move(hook); }
  /// Sets a function that is called when a copy is enqueued.
  void set_copy_hook(std::function<void(const copy_engine::RowCopy&, Stream)> hook) { copy_hook_ = std::move(hook); }

  Result<Stream> create_stream() override {
    STRAIT_TRY(command());
    if (!options_.one_queue || queues_.empty()) queues_.push_back(std::make_unique<Queue>(options_, random_()));
    streams_.push_back(std::make_unique<FakeStream>(FakeStream{*queues_.back(), {}, false, false}));
    return static_cast<Stream>(streams_.back().get());
  }
  void destroy_stream(Stream stream) override { queue(stream).finish(); }
  /// Marks a stream as destroyed by its owner: what was enqueued still runs, and any later use fails the test.
  void forget(Stream stream) { static_cast<FakeStream*>(stream)->forgotten = true; }
  Result<Event> create_event() override {
    STRAIT_TRY(command());
    events_.push_back(std::make_unique<FakeEvent>());
    return static_cast<Event>(events_.back().get());
  }
  void destroy_event(Event event) override { static_cast<FakeEvent*>(event)->destroyed = true; }

  int looks() const { return looks_; }
  Result<copy_engine::StreamState> look_at(Stream stream) override {
    const auto* const fake = static_cast<const FakeStream*>(stream);
    EXPECT_FALSE(fake->forgotten);
    ++looks_;
    if (captures_ && fake->captured && invalidated_)
      return fail(Code::invalid_usage, "an error has ended the capture of a fake stream");
    return copy_engine::StreamState{reinterpret_cast<std::uintptr_t>(stream),
                                    captures_ && fake->captured ? capture_number_ : 0};
  }
  Status record(Event event, Stream stream) override {
    STRAIT_TRY(command());
    issue(stream, [=, this, fake = static_cast<FakeEvent*>(event)] {
      push(stream, [passed = fake->record()] { *passed = true; });
    });
    return {};
  }
  Status wait(Stream stream, Event event) override {
    STRAIT_TRY(command());
    issue(stream, [=, this, fake = static_cast<FakeEvent*>(event)] {
      push(stream, [passed = fake->last()] { await([&] { return passed->load(); }); });
    });
    return {};
  }
  Status wait_external(Stream stream, Event event) override {
    EXPECT_TRUE(captures_);
    return wait(stream, event);
  }
  Status record_external(Event event, Stream stream, copy_engine::GraphEnd& end) override {
    STRAIT_TRY(command());
    EXPECT_TRUE(captures_);
    void* const graph = reinterpret_cast<void*>(capture_number_);
    EXPECT_TRUE(end.node == nullptr || end.node == graph) << "a node of another graph";
    end.node = graph;
    captured_end_ = [=, this, fake = static_cast<FakeEvent*>(event)] {
      push(stream, [passed = fake->record()] { *passed = true; });
    };
    return {};
  }
  Status copy(const copy_engine::RowCopy& copy, Stream stream) override {
    STRAIT_TRY(command());
    check(copy.to);
    check(copy.from);
    if (copy_hook_) copy_hook_(copy, stream);
    issue(stream, [=, this] {
      push(stream, [copy] {
        if (is_word(copy)) {  // others may be writing it at the same time
          auto& from = *static_cast<std::uint32_t*>(const_cast<void*>(copy.from));
          return std::atomic_ref(*static_cast<std::uint32_t*>(copy.to)).store(std::atomic_ref(from).load());
        }
        for (std::size_t row = 0; row < copy.rows; ++row)
          std::memcpy(static_cast<std::byte*>(copy.to) + row * copy.to_pitch_bytes,
                      static_cast<const std::byte*>(copy.from) + row * copy.from_pitch_bytes, copy.row_bytes);
      });
    });
    return {};
  }
  Status operate(std::span<const copy_engine::MemoryOperation> operations, Stream stream) override {
    STRAIT_TRY(command());
    for (const copy_engine::MemoryOperation& operation : operations) {
      check(operation.word);
      issue(stream, [=, this] {
        push(stream, [operation, this] {
          if (hook_) hook_(operation);
          carry_out(operation);
        });
      });
    }
    return {};
  }
  bool is_idle(Stream stream) override { return queue(stream).is_idle(); }
  std::optional<bool> has_passed(Event event) override { return static_cast<const FakeEvent*>(event)->last()->load(); }

  /// Enqueues any other work on a stream, such as a user's own.
  void run(Stream stream, std::function<void()> work) {
    issue(stream, [=, this] { push(stream, work); });
  }
  /// Enqueues a kernel: other streams of the same queue go on once it has begun, later work of its own stream when it
  /// has ended.
  void launch(Stream stream, std::function<void()> begin, std::function<void()> end) {
    issue(stream, [=, this] {
      push(stream, begin);
      static_cast<FakeStream*>(stream)->kernel_end = end;
    });
  }
  /// Until end_capture(), commands of all streams that exist now are recorded instead of executed. Each replay()
  /// enqueues the recorded commands on their streams.
  void begin_capture(std::uint64_t number = 0) {
    for (const auto& stream : streams_) stream->captured = true;
    captured_.clear();
    captured_end_ = {};
    capture_number_ = number != 0 ? number : capture_number_ + 1;
    captures_ = true;
    invalidated_ = false;
  }
  /// Invalidates the capture as an error does: its streams cannot be used until end_capture().
  void invalidate_capture() { invalidated_ = true; }
  void end_capture() { captures_ = false; }
  void replay() {
    for (const auto& command : captured_) command();
    if (captured_end_) captured_end_();
  }
  void finish(Stream stream) {
    push(stream, [] {});
    queue(stream).finish();
  }

 private:
  /// An event. Each record is a separate object, because an event recorded on two streams may be reached on the second
  /// one first.
  class FakeEvent {
   public:
    using Record = std::shared_ptr<std::atomic<bool>>;
    Record record() {
      const std::lock_guard lock(mutex_);
      return last_ = std::make_shared<std::atomic<bool>>(false);
    }
    Record last() const {
      const std::lock_guard lock(mutex_);
      return last_;
    }
    bool destroyed = false;

   private:
    mutable std::mutex mutex_;
    Record last_ = std::make_shared<std::atomic<bool>>(true);
  };

  /// Waits for a condition as a stream does. A stream waits without limit; this fails the test after a minute.
  template <class Condition>
  static void await(const Condition& condition) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > give_up) {
        ADD_FAILURE() << "a stream has waited for a minute";
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  class Queue {
   public:
    Queue(const Options& options, std::uint64_t seed)
        : slow_(options.slow), random_(seed), thread_([this](const std::stop_token& stop) { work(stop); }) {}
    void push(std::function<void()> command) {
      const std::lock_guard lock(mutex_);
      commands_.push_back(std::move(command));
      changed_.notify_all();
    }
    bool is_idle() {
      const std::lock_guard lock(mutex_);
      return commands_.empty();
    }
    void finish() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return commands_.empty(); });
    }

   private:
    void work(const std::stop_token& stop) {
      std::unique_lock lock(mutex_);
      while (changed_.wait(lock, stop, [&] { return !commands_.empty(); })) {
        const auto command = commands_.front();
        lock.unlock();
        if (slow_ && random_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 100));
        command();
        lock.lock();
        commands_.pop_front();
        changed_.notify_all();
      }
    }
    bool slow_;
    std::mt19937_64 random_;
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<std::function<void()>> commands_;  ///< the first is being executed
    std::jthread thread_;
  };

  struct FakeStream {
    Queue& queue;
    std::function<void()> kernel_end;  ///< end of the kernel launched last, enqueued before the next command
    bool forgotten = false;
    bool captured = false;  ///< existed when the current or last capture began
  };

  static bool is_word(const copy_engine::RowCopy& copy) {
    const auto places = reinterpret_cast<std::uintptr_t>(copy.to) | reinterpret_cast<std::uintptr_t>(copy.from);
    return copy.rows == 1 && copy.row_bytes == sizeof(std::uint32_t) && places % sizeof(std::uint32_t) == 0;
  }
  static void carry_out(const copy_engine::MemoryOperation& operation) {
    using Kind = copy_engine::MemoryOperation::Kind;
    auto* const words = static_cast<std::uint32_t*>(operation.word);
    const std::atomic_ref word(words[0]);
    const auto value = [&] { return word.load(std::memory_order_acquire); };
    switch (operation.kind) {
      case Kind::write:
        return word.store(operation.value, std::memory_order_release);
      case Kind::clear_pair:
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(words) % 8, 0u);
        word.store(0, std::memory_order_release);
        return std::atomic_ref(words[1]).store(0, std::memory_order_release);
      case Kind::wait_at_least:
        return await([&] { return static_cast<std::int32_t>(value() - operation.value) >= 0; });
      case Kind::wait_equal:
        return await([&] { return value() == operation.value; });
    }
  }

  void issue(Stream stream, std::function<void()> command) {
    if (captures_ && static_cast<FakeStream*>(stream)->captured)
      captured_.push_back(std::move(command));
    else
      command();
  }
  void push(Stream stream, std::function<void()> command) {
    auto& fake = *static_cast<FakeStream*>(stream);
    EXPECT_FALSE(fake.forgotten) << "a stream was used that its owner may have destroyed";
    if (fake.kernel_end) fake.queue.push(std::exchange(fake.kernel_end, {}));
    fake.queue.push(std::move(command));
  }
  Queue& queue(Stream stream) { return static_cast<FakeStream*>(stream)->queue; }
  Status command() {
    ++commands_;
    if (commands_left_ > 0) --commands_left_;
    if (commands_left_ == 0) return fail(Code::cuda_error, "a command of a fake stream was told to fail");
    return {};
  }
  void check(const void* address) const {
    EXPECT_FALSE(address >= forbidden_.first && address < forbidden_.second) << "a stream was given a host address";
  }

  Options options_;
  std::mt19937_64 random_;
  std::pair<const void*, const void*> forbidden_{};
  int commands_ = 0, commands_left_ = -1;
  std::vector<std::unique_ptr<FakeEvent>> events_;
  std::vector<std::unique_ptr<FakeStream>> streams_;
  std::vector<std::function<void()>> captured_;
  std::function<void()> captured_end_;
  std::function<void(const copy_engine::MemoryOperation&)> hook_;
  std::function<void(const copy_engine::RowCopy&, Stream)> copy_hook_;
  bool captures_ = false, invalidated_ = false;
  std::uint64_t capture_number_ = 0;
  std::atomic<int> looks_ = 0;
  std::vector<std::unique_ptr<Queue>> queues_;  ///< last member, because their threads use the events
};

}  // namespace strait::testing
