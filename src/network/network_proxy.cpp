#include "network/network_proxy.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/left_at_exit.hpp"
#include "base/log.hpp"
#include "base/own_thread.hpp"
#include "base/shortage.hpp"

namespace strait {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::Flow;
using kernels::NetworkCall;
using kernels::NetworkWords;

/// How long a thread polls before it naps: longer than a GPU takes to its next step if all is well, but not so long
/// that the threads of many ranks take cores from what the program does between calls.
constexpr auto spin = std::chrono::microseconds(200);
constexpr auto shortest_nap = std::chrono::microseconds(30), longest_nap = std::chrono::microseconds(300);
constexpr int looks_between_clocks = 64;

/// Sends what the streams have put on its way. All proxies together have the time that one has.
void finish_all(const std::vector<const NetworkProxy*>& proxies) {
  const auto deadline = Deadline::after_ms(NetworkProxy::longest_finish_ms);
  for (const NetworkProxy* proxy : proxies) proxy->finish(deadline);
}
using Proxies = LeftAtExit<const NetworkProxy, finish_all>;

std::uint64_t read(NetworkWords::Word& word) { return std::atomic_ref(word.value).load(std::memory_order_acquire); }
void write(NetworkWords::Word& word, std::uint64_t value) {
  std::atomic_ref(word.value).store(value, std::memory_order_release);
}

}  // namespace

/// The ring buffers of those messages of a call that one lane carries.
class NetworkProxy::Pieces final : public MessagePieces {
 public:
  Pieces(const Setup& setup, const Described& described, const std::vector<std::size_t>& places)
      : setup_(setup), described_(described), places_(places) {}
  std::size_t slice_bytes() const noexcept override { return described_.flows.front().piece_bytes; }
  std::byte* find(std::size_t message, std::uint32_t slice) noexcept override {
    const std::size_t place = places_[message];
    const Flow& flow = described_.flows[place];
    const std::uint64_t moved = read(setup_.words->moved[place]) - described_.pieces[place];
    const std::uint64_t there = moved + (flow.sends ? 0 : flow.depth);
    if (slice >= there) return nullptr;
    return setup_.slots + flow.slot_offset + std::size_t{slice % flow.depth} * flow.piece_bytes;
  }
  void mark_done(std::size_t message, std::uint32_t slice) noexcept override {
    const std::size_t place = places_[message];
    write(setup_.words->ready[place], described_.pieces[place] + slice + 1);
  }

 private:
  const Setup& setup_;
  const Described& described_;
  const std::vector<std::size_t>& places_;
};

Status NetworkProxy::start() {
  Proxies::instance().add(*this);
  const SignalsBlocked inherited;
  now_.pieces.resize(kernels::max_flows);
  try {
    threads_.emplace_back([this] { run_first_lane(); });
    for (std::uint32_t lane = 1; lane < setup_.lanes; ++lane) threads_.emplace_back([this, lane] { run_lane(lane); });
  } catch (const std::system_error& error) {
    return cannot_start_thread(error, "that trades with other hosts", "set STRAIT_NETWORK_LANES lower");
  }
  return {};
}

void NetworkProxy::end() {
  Proxies::instance().remove(*this);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  threads_.clear();
}

/// A kernel that awaits data runs until its call is done, so its call is the last one described.
bool NetworkProxy::is_idle() const {
  const std::uint64_t done = read(setup_.words->calls_done), posted = read(setup_.words->posted);
  return posted == done || (posted == done + 1 && setup_.words->description_of(done).call.is_awaited);
}

bool NetworkProxy::drain(const Deadline& deadline) const {
  bool is_late = false;
  await([&] { return is_idle() || (is_late = deadline.expired()); });
  return !is_late;
}

bool NetworkProxy::finish(const Deadline& deadline) const {
  if (drain(deadline)) return true;
  log_warn(
      setup_.rank,
      "its communicator ends, and what it has sent to other hosts is lost: their ranks have not come to receive it "
      "for some seconds. Let them make the same calls before this rank ends");
  return false;
}

void NetworkProxy::expect(std::uint64_t calls) {
  {
    const std::lock_guard lock(mutex_);
    expected_ += calls;
  }
  changed_.notify_all();
}

void NetworkProxy::run_first_lane() {
  begin_polling_thread("strait-network");
  while (await_call()) {
    const Status done = catch_shortage([this] {
      read_description();
      return carry_out_together();
    });
    if (!done) {
      if (!stopping_) setup_.fail(done.error());  // else only the wait for the other lanes has ended early
      return;
    }
    write(setup_.words->calls_done, ++calls_);
  }
}

void NetworkProxy::run_lane(std::uint32_t lane) {
  begin_polling_thread("strait-network");
  for (std::uint64_t carried_out = 0;; ++carried_out) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || shared_calls_ > carried_out; });
      if (stopping_) return;
    }
    const Status done = catch_shortage([this, lane] { return carry_out(lane); });
    if (!done) setup_.fail(done.error());
    --busy_lanes_;
    if (!done) return;
  }
}

/// Polls for a while after the last call; then sleeps until a call is expected, and polls for it.
bool NetworkProxy::await_call() {
  const auto is_posted = [this] { return read(setup_.words->posted) > calls_; };
  for (const auto began = Clock::now(); Clock::now() - began < spin && !stopping_;
       setup_.receive_early(0, now_.call.among))
    for (int look = 0; look < looks_between_clocks; ++look) {
      if (is_posted()) return true;
      relax();
    }
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || expected_ > calls_; });
  }
  return await(is_posted, [this] { setup_.receive_early(0, now_.call.among); });
}

template <class Condition, class Beside>
bool NetworkProxy::await(Condition&& condition, Beside&& beside) const {
  for (const auto began = Clock::now();;) {
    for (int look = 0; look < looks_between_clocks; ++look) {
      if (condition()) return true;
      relax();
    }
    if (is_over()) return false;
    beside();
    const Clock::duration waited = Clock::now() - began;
    if (waited >= spin)
      std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 16, shortest_nap, longest_nap));
  }
}

/// Reads the next call as its kernel has described it.
void NetworkProxy::read_description() {
  const NetworkWords::Description& description = setup_.words->description_of(calls_);
  for (std::size_t place = 0; place < now_.flows.size(); ++place)
    if (now_.call.collective == Collective::send_recv) now_.pieces[place] += kernels::pieces_of(now_.flows[place]);
  now_.first_round += now_.call.rounds;
  now_.call = description.call;
  now_.flows.assign(description.flows, description.flows + now_.call.flow_count);
}

/// The first thread alone carries out what only one lane has to do, so that no other thread is woken for a call of one
/// round or for short messages between two ranks.
Status NetworkProxy::carry_out_together() {
  const std::uint32_t lane = now_.flows.empty() ? 0 : now_.flows.front().lane;
  const auto is_others = [lane](const Flow& flow) { return flow.lane != lane; };
  const bool is_shared = now_.call.rounds > 1 || std::any_of(now_.flows.begin(), now_.flows.end(), is_others);
  if (!is_shared || lanes_of_call() == 1) return carry_out(lane);
  busy_lanes_ = setup_.lanes - 1;
  {
    const std::lock_guard lock(mutex_);
    ++shared_calls_;
  }
  changed_.notify_all();
  STRAIT_TRY(carry_out(0));
  if (!await([this] { return busy_lanes_ == 0; })) return fail(Code::aborted, "the communicator has failed");
  return {};
}

Status NetworkProxy::carry_out(std::uint32_t lane) {
  const NetworkCall& call = now_.call;
  if (call.collective == Collective::send_recv) return carry_out_messages(lane);
  auto& pushed = setup_.words->pushed;
  const std::uint32_t lanes = lanes_of_call();
  for (std::uint32_t round = lane; lane < lanes && round < call.rounds; round += lanes) {
    const std::uint64_t number = now_.first_round + round;
    const auto has_come = [&] {
      return std::all_of(pushed, pushed + call.blocks, [&](auto& word) { return read(word) > number; });
    };
    if (!await(has_come, [&] { setup_.receive_early(lane, call.among); }))
      return fail(Code::aborted, "the communicator has failed");
    STRAIT_TRY(setup_.run(lane, call.among, call_of_round(round)));
    finish_round(number);
  }
  return {};
}

/// Lanes finish rounds in any order. The kernel is told of rounds that have no unfinished one before them.
void NetworkProxy::finish_round(std::uint64_t round) {
  const std::lock_guard lock(finishing_);
  finished_[round % finished_.size()] = true;
  while (std::exchange(finished_[rounds_ % finished_.size()], false)) ++rounds_;
  write(setup_.words->rounds_done, rounds_);
}

/// Copies a round's residual from the slot that the kernel has filled to the one from which it will take the new
/// residual. Returns the copy.
float* NetworkProxy::bring_residual(std::uint64_t round, std::size_t count) const {
  const auto in_slot = [&](bool sends) {
    return setup_.slots + kernels::network_slot(round, sends, setup_.slot_bytes) + now_.call.residual_offset;
  };
  std::memcpy(in_slot(false), in_slot(true), now_.call.residual_blocks * count * sizeof(float));
  return reinterpret_cast<float*>(in_slot(false));
}

Call NetworkProxy::call_of_round(std::uint32_t round) const {
  const NetworkCall& call = now_.call;
  Call own;
  own.collective = call.collective;
  own.type = call.type;
  own.op = call.op;
  own.root = call.root;
  own.wire = call.wire;
  own.count = call.count;
  own.whole_count = call.whole_count;
  if (own.count == 0 && !now_.flows.empty())
    own.count = kernels::piece_of(now_.flows.front(), round).bytes / size_bytes(call.type);
  const std::uint64_t number = now_.first_round + round;
  own.send = setup_.slots + kernels::network_slot(number, true, setup_.slot_bytes);
  own.receive = setup_.slots + kernels::network_slot(number, false, setup_.slot_bytes);
  if (own.collective == Collective::broadcast && !call.is_awaited)
    own.receive = const_cast<void*>(own.send);  // in place: the root already has what it sends
  if (call.residual_blocks != 0) own.residual = bring_residual(number, own.count);
  return own;
}

Status NetworkProxy::carry_out_messages(std::uint32_t lane) const {
  std::vector<std::size_t> places;
  std::vector<Call> messages;
  for (std::size_t place = 0; place < now_.flows.size(); ++place) {
    const Flow& flow = now_.flows[place];
    if (flow.lane != lane) continue;
    places.push_back(place);
    Call& message = messages.emplace_back();
    message.collective = Collective::send_recv;
    message.type = flow.type;
    message.count = flow.bytes / size_bytes(flow.type);
    message.whole_count = flow.whole_bytes / size_bytes(flow.type);
    message.sends = flow.sends;
    message.peer = flow.peer;
  }
  if (messages.empty()) return {};
  Pieces pieces(setup_, now_, places);
  return setup_.run_messages(lane, messages, pieces);
}

}  // namespace strait
