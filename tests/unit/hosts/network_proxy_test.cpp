// A proxy by itself: what it still does when its communicator is destroyed, or its process exits.
#include "network/network_proxy.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "communicator/comm.hpp"
#include "support/ranks.hpp"
#include "support/sanitizers.hpp"
#include "support/shared_count.hpp"

namespace strait::testing {
namespace {

using kernels::NetworkCall;
using kernels::NetworkWords;
using std::chrono::milliseconds;

/// A proxy of calls of one round, which run when the test allows it, and are counted then.
class OwnProxy {
 public:
  explicit OwnProxy(SharedCount& carried_out) {
    NetworkProxy::Setup setup;
    setup.words = words_.get();
    setup.slots = slots_.data();
    setup.slot_bytes = 16;
    setup.run = [this, &carried_out](std::uint32_t, auto, const Call&) -> Status {
      while (carried_out.value >= allowed_ && !has_failed_) std::this_thread::sleep_for(milliseconds(1));
      if (!has_failed_) ++carried_out.value;
      return {};
    };
    setup.has_failed = [this] { return has_failed_.load(); };
    setup.fail = [](const Error&) {};
    proxy = std::make_unique<NetworkProxy>(std::move(setup));
    EXPECT_TRUE(proxy->start());
  }
  void allow(int calls) { allowed_ = calls; }
  /// Posts calls, as kernels do that have ended or, if `is_awaited`, that wait for the call.
  void post(int calls, bool is_told = true, bool is_awaited = false) {
    for (int i = 0; i < calls; ++i) {
      NetworkCall& call = words_->description_of(posted_).call;
      call.rounds = call.blocks = 1;
      call.is_awaited = is_awaited;
      call.collective = Collective::barrier;
      write(words_->pushed[0], ++posted_);
      if (is_told) proxy->expect();
      write(words_->posted, posted_);
    }
  }
  void fail() { has_failed_ = true; }

 private:
  static void write(NetworkWords::Word& word, std::uint64_t value) {
    std::atomic_ref(word.value).store(value, std::memory_order_release);
  }
  std::unique_ptr<NetworkWords> words_ = std::make_unique<NetworkWords>();
  std::vector<std::byte> slots_ = std::vector<std::byte>(kernels::network_slots_bytes(16));
  std::atomic<bool> has_failed_{false};
  std::atomic<int> allowed_{0};
  std::uint64_t posted_ = 0;

 public:
  std::unique_ptr<NetworkProxy> proxy;
};

TEST(NetworkProxy, DrainsUntilAllIsCarriedOut) {
  SharedCount carried_out;
  OwnProxy own(carried_out);
  EXPECT_TRUE(own.proxy->is_idle());
  own.post(3);
  EXPECT_FALSE(own.proxy->is_idle());
  EXPECT_FALSE(own.proxy->drain(Deadline::after_ms(1)));
  own.allow(3);
  EXPECT_TRUE(own.proxy->drain());
  EXPECT_TRUE(own.proxy->is_idle());
  EXPECT_EQ(carried_out.value, 3);
}

TEST(NetworkProxy, DrainsNoLongerThanItsCommunicatorLives) {
  SharedCount carried_out;
  OwnProxy own(carried_out);
  own.post(2);
  own.fail();
  EXPECT_TRUE(own.proxy->drain());
  EXPECT_EQ(carried_out.value, 0);
}

/// The kernel of an awaited call still waits itself, so a process that exits meanwhile has not been told that the call
/// is done, and the proxy need not complete it.
TEST(NetworkProxy, LeavesWhatIsAwaited) {
  SharedCount carried_out;
  OwnProxy own(carried_out);
  own.post(1, true, true);
  EXPECT_TRUE(own.proxy->is_idle());
  own.allow(1);
  while (carried_out.value < 1) std::this_thread::sleep_for(milliseconds(1));
  own.post(1);
  own.post(1, true, true);
  EXPECT_FALSE(own.proxy->is_idle()) << "what was sent before it is on its way";
  own.allow(2);
  EXPECT_TRUE(own.proxy->drain());
  EXPECT_EQ(carried_out.value, 2);
  own.fail();
}

/// For example for the launch of a graph, which announces all its calls at once.
TEST(NetworkProxy, StaysAwakeForAllThatItExpects) {
  SharedCount carried_out;
  OwnProxy own(carried_out);
  own.allow(3);
  own.proxy->expect(3);
  for (int call = 1; call <= 3; ++call) {
    std::this_thread::sleep_for(milliseconds(5));
    own.post(1, false);
    ASSERT_TRUE(own.proxy->drain(Deadline::after_ms(20'000))) << "call " << call;
    EXPECT_EQ(carried_out.value, call);
  }
}

/// Returns the exit status of a child process that runs `body` and then exits, like programs that return from main().
int status_of_exit(const std::function<void()>& body) {
  const pid_t child = fork_rank([&] {
    body();
    std::exit(::testing::Test::HasFailure() ? 1 : 0);
  });
  return wait_for(child, 60'000);
}

TEST(NetworkProxy, CarriesOutWhatIsLeftWhenItsProcessExits) {
  SharedCount carried_out;
  const int status = status_of_exit([&] {
    auto* const own = new OwnProxy(carried_out);  // never destroyed
    own->post(3);
    std::thread([own] {
      std::this_thread::sleep_for(milliseconds(100));
      own->allow(3);
    }).detach();
    EXPECT_EQ(carried_out.value, 0);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(carried_out.value, 3);
}

TEST(NetworkProxy, LeavesItToTheProcessWhoseItIs) {
  // What is forked beside the proxy's thread looks for leaks at its exit, and may wait for ever for that thread's
  // locks.
  if (is_sanitized) GTEST_SKIP() << "sanitizers do not bear forks beside threads";
  SharedCount carried_out;
  const int status = status_of_exit([&] {
    auto* const own = new OwnProxy(carried_out);
    own->post(3);
    const auto began = std::chrono::steady_clock::now();
    EXPECT_EQ(status_of_exit([] {}), 0) << "what is forked from it has none of its threads";
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(8)) << "it would wait for 10";
    own->allow(3);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(carried_out.value, 3);
}

/// The proxy is ended as at the end of a communicator, which first gives data that has been sent more time.
TEST(NetworkProxy, EndsWhereNobodyReceives) {
  setenv("STRAIT_TRANSPORT", "tcp", 1);
  const auto id = create_unique_id(Environment(), {});
  ASSERT_TRUE(id);
  const auto join_as = [&](int rank) {
    JoinOptions place;
    place.rank = rank;
    place.ranks = 2;
    place.wait.deadline = Deadline::after_ms(20'000);
    return std::move(*Comm::create(std::move(*join(*id, place)), CommOptions()));
  };
  std::atomic<bool> has_ended{false};
  std::jthread other([&] {
    const auto comm = join_as(1);
    has_ended.wait(false);  // alive, but not receiving
  });
  const auto comm = join_as(0);
  const auto words = std::make_unique<NetworkWords>();
  std::vector<std::byte> slots(kernels::network_slots_bytes(16)), data(8 << 20);
  NetworkProxy::Setup setup;
  setup.words = words.get();
  setup.slots = slots.data();
  setup.slot_bytes = 16;
  setup.run = [&](std::uint32_t, auto, const Call&) -> Status {
    Call call;
    call.collective = Collective::broadcast;
    call.type = DataType::uint8;
    call.count = data.size();
    call.send = call.receive = data.data();
    return comm->or_out_of_memory([&] { return comm->run(call); });
  };
  setup.has_failed = [] { return false; };
  setup.fail = [&](const Error& error) { comm->fail_in(error); };
  NetworkProxy proxy(std::move(setup));
  ASSERT_TRUE(proxy.start());
  NetworkCall& call = words->description_of(0).call;
  call.rounds = call.blocks = 1;
  call.collective = Collective::barrier;
  std::atomic_ref(words->pushed[0].value) = 1;
  proxy.expect();
  std::atomic_ref(words->posted.value) = 1;
  EXPECT_FALSE(proxy.finish(Deadline::after_ms(300)));
  const auto began = std::chrono::steady_clock::now();
  comm->fail_in({Code::aborted, "nobody receives"});
  proxy.end();
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(5000));
  has_ended = true;
  has_ended.notify_all();
}

}  // namespace
}  // namespace strait::testing
