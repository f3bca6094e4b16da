#include "communicator/network_proxy.hpp"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "base/own_thread.hpp"
#include "base/shortage.hpp"

namespace strait {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::Flow;
using kernels::NetworkCall;
using kernels::NetworkWords;

/// Longer than what a GPU takes to its next step where all is well.
constexpr auto spin = std::chrono::microseconds(2000);
constexpr auto first_nap = std::chrono::microseconds(30), longest_nap = std::chrono::microseconds(300);
constexpr unsigned long timer_slack_ns = 1000;  // of naps; the system's default would stretch each by 50 us
constexpr int looks_between_clocks = 64;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

std::uint64_t read(NetworkWords::Word& word) { return std::atomic_ref(word.value).load(std::memory_order_acquire); }
void write(NetworkWords::Word& word, std::uint64_t value) {
  std::atomic_ref(word.value).store(value, std::memory_order_release);
}

}  // namespace

/// The rings of a call's messages. `base`: pieces that each place had before.
class NetworkProxy::Pieces final : public MessagePieces {
 public:
  Pieces(const Setup& setup, std::span<const Flow> flows, std::span<const std::uint64_t> base)
      : setup_(setup), flows_(flows), base_(base) {}
  std::byte* find(std::size_t message, std::uint32_t slice) noexcept override {
    const Flow& flow = flows_[message];
    const std::uint64_t moved = read(setup_.words->moved[message]) - base_[message];
    const std::uint64_t there = moved + (flow.sends ? 0 : flow.depth);
    if (slice >= there) return nullptr;
    return setup_.slots + flow.slot_offset + std::size_t{slice % flow.depth} * flow.piece_bytes;
  }
  void finish(std::size_t message, std::uint32_t slice) noexcept override {
    write(setup_.words->ready[message], base_[message] + slice + 1);
  }

 private:
  const Setup& setup_;
  std::span<const Flow> flows_;
  std::span<const std::uint64_t> base_;
};

void NetworkProxy::end() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_ = {};
}

Status NetworkProxy::start() {
  const SignalsBlocked inherited;
  try {
    thread_ = std::jthread([this] { work(); });
  } catch (const std::system_error& error) {
    return fail(Code::system_error, std::string("cannot start the thread that trades with other hosts: ") +
                                        error.what() + ". Allow more threads (ulimit -u)");
  }
  return {};
}

void NetworkProxy::expect() {
  {
    const std::lock_guard lock(mutex_);
    ++expected_;
  }
  changed_.notify_all();
}

void NetworkProxy::work() {
  is_own_thread = true;
  pthread_setname_np(pthread_self(), "strait-network");
  prctl(PR_SET_TIMERSLACK, timer_slack_ns);
  while (await_expected() && await([this] { return read(setup_.words->posted) > calls_; })) {
    if (const Status done = or_shortage([this] { return carry_out(); }); !done) return setup_.fail(done.error());
    ++calls_;
  }
}

bool NetworkProxy::await_expected() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || expected_ > calls_; });
  return !stopping_;
}

template <class Condition>
bool NetworkProxy::await(Condition&& condition) const {
  const auto began = Clock::now();
  auto nap = first_nap;
  for (;;) {
    for (int look = 0; look < looks_between_clocks; ++look) {
      if (condition()) return true;
      relax();
    }
    if (is_over()) return false;
    if (Clock::now() - began < spin) continue;
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, longest_nap);
  }
}

/// Once all of a call has been carried out, the next launch may describe another one there.
Status NetworkProxy::carry_out() {
  NetworkWords& words = *setup_.words;
  const NetworkCall call = words.call;
  const std::vector<Flow> flows(words.flows, words.flows + call.flow_count);
  if (call.collective == Collective::send_recv) return carry_out_messages(flows);
  for (std::uint32_t round = 0; round < call.rounds; ++round, ++rounds_) {
    const auto has_come = [&] {
      return std::all_of(words.pushed, words.pushed + call.blocks, [this](auto& word) { return read(word) > rounds_; });
    };
    if (!await(has_come)) return fail(Code::aborted, "the communicator has failed");
    STRAIT_TRY(setup_.run(call.among, call_of_round(call, flows, round)));
    write(words.done, rounds_ + 1);
  }
  return {};
}

Call NetworkProxy::call_of_round(const NetworkCall& call, std::span<const Flow> flows, std::uint32_t round) const {
  Call own;
  own.collective = call.collective;
  own.type = call.type;
  own.op = call.op;
  own.root = call.root;
  own.wire = call.wire;
  own.count = call.count;
  if (own.count == 0 && !flows.empty())
    own.count = kernels::piece_of(flows.front(), round).bytes / size_bytes(call.type);
  own.send = setup_.slots + kernels::network_slot(rounds_, true, setup_.slot_bytes);
  own.receive = setup_.slots + kernels::network_slot(rounds_, false, setup_.slot_bytes);
  return own;
}

Status NetworkProxy::carry_out_messages(std::span<const Flow> flows) {
  std::vector<Call> messages;
  for (const Flow& flow : flows) {
    Call& message = messages.emplace_back();
    message.collective = Collective::send_recv;
    message.type = flow.type;
    message.count = flow.bytes / size_bytes(flow.type);
    message.sends = flow.sends;
    message.peer = flow.peer;
  }
  Pieces pieces(setup_, flows, pieces_);
  STRAIT_TRY(setup_.run_messages(messages, pieces));
  for (std::size_t i = 0; i < flows.size(); ++i) pieces_[i] += kernels::pieces_of(flows[i]);
  return {};
}

}  // namespace strait
