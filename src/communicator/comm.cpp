// An operation of a communicator: from a valid call to its completion.
#include "communicator/comm.hpp"

#include <algorithm>
#include <bitset>
#include <utility>

#include "base/at_scope_end.hpp"
#include "calls/hops.hpp"
#include "kernels/launch.hpp"

namespace strait {
namespace {

constexpr int quick_tries = 8;

}  // namespace

Error Comm::raise_out_of_memory() {
  last_memory_.reset();
  return end_in({Code::out_of_memory,
                 "no memory left to prepare the operation. Check the limit of address space (ulimit -v) and the memory "
                 "limit of the container"});
}

void Comm::give_up_set_up(const Error& error) {
  last_memory_.reset();
  channel_->announce({Code::remote_error, channel_->self().describe() + " cannot go on: " + error.message});
}

Error Comm::end_in(Error error) {
  error = watch_->raise(std::move(error));
  abandon();
  return error;
}

void Comm::abandon() {
  transport_->abandon();
  if (transport_->reaches_buffers()) watch_->await_steps(operation());
}

Status Comm::run(const Call& call) {
  STRAIT_TRY(begin(call));
  return finish();
}

Status Comm::run_message(const Call& call) {
  STRAIT_TRY(check_messages(std::span(&call, 1)));
  STRAIT_TRY(begin_messages(std::span(&call, 1)));
  return finish();
}

Status Comm::finish() {
  for (;;) {
    // Most waits are shorter than the time it takes to prepare a longer one.
    for (int tries = 0; tries < quick_tries; ++tries) {
      STRAIT_ASSIGN(const State state, step());
      if (state == State::done) return {};
    }
    STRAIT_TRY(pause());
  }
}

/// For this thread a call is done once it is enqueued: from then on it belongs to its stream.
Status Comm::begin_on_device(std::span<const Call> calls) {
  const Call& first = calls.front();
  const std::uint64_t number = sequence_ + 1;
  // All streams are asked before any call is posted, because they may refuse.
  std::bitset<kernels::max_aggregated> captured;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const bool was_asked = i != 0 && calls[i].stream == calls[i - 1].stream;
    STRAIT_ASSIGN(captured[i], was_asked
                                   ? Result<bool>(captured[i - 1])
                                   : capture_of(calls[i]).map([](std::uint64_t capture) { return capture != 0; }));
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    if (captured[i]) {
      has_captured_ = true;
    } else {
      const CallSignature posted = has_captured_ ? after_capture(signature(call)) : signature(call);
      transport_->post_call(++sequence_, posted, call.send, call.receive);
      recorder_->set_stream(sequence_, call.stream);
    }
  }
  program_ = nullptr;
  return launched(first, number, calls.size() == 1 ? device_->enqueue(first) : device_->enqueue_aggregate(calls));
}

Status Comm::await_device() const {
  if (device_) STRAIT_TRY(device_->await_work());
  return sticky();
}

Result<std::size_t> Comm::begin_first_of(std::span<Call> group) {
  const std::size_t together = device_ && !has_failed() ? device_->aggregated_calls(group) : 1;
  if (together == 1) return begin(group.front()).map([] { return std::size_t{1}; });
  for (Call& call : group.subspan(1, together - 1)) call.aggregated = true;
  return begin_on_device(group.first(together)).map([&] { return together; });
}

/// CUDA's errors tell what CUDA was asked for, but not for which operation.
Status Comm::launched(const Call& call, std::uint64_t number, Status result) {
  if (result) return {};
  Error error = std::move(result).error();
  const bool is_counted = number != 0 && number <= sequence_;  // captured calls are not
  error.message = describe(signature(call)) + (is_counted ? ", collective number " + std::to_string(number) : "") +
                  " on " + watch_->name_of(rank_) + ": " + error.message;
  if (error.code == Code::cuda_error) error.message += " (CUDA may report here what earlier work on this GPU did)";
  return tl::unexpected(watch_->raise(std::move(error)));
}

Status Comm::check_algorithm(const Call& call) const {
  if (call.algorithm == nullptr) return {};
  const std::string name(call.algorithm->name);
  const bool supported = device_ ? hops_of(name) != Hops::chosen : programs_->supports(call);
  if (supported) return {};
  return fail(Code::invalid_argument, describe(signature(call)) + " on " + std::to_string(ranks_) +
                                          (device_ ? " GPU ranks: calls take one_hop or two_hop there, not "
                                                   : " ranks cannot be carried out by ") +
                                          name + ". Leave `algorithm` out of its options to have one chosen");
}

Status Comm::prepare(const Call& call) {
  STRAIT_TRY(check_algorithm(call));
  if (!device_ || has_failed()) return {};
  Status prepared = device_->prepare_call(call);
  // After a refusal nothing has changed. Of any other error, such as a lack of memory, peers must hear.
  if (prepared || prepared.error().code == Code::invalid_usage) return prepared;
  return tl::unexpected(watch_->raise(std::move(prepared).error()));
}

Status Comm::begin(const Call& call) {
  if (has_failed()) return watch_->sticky();
  if (device_) return begin_on_device({&call, 1});
  const auto begin_contribution = [&](const Call& own) {
    return is_encoded(own, ranks_) ? begin_quantized(own) : begin_on_host(own, own);
  };
  return begin_contribution(call.op == ReduceOp::premul_sum ? contribution_.make(call, rank_, ranks_, simd_) : call);
}

Status Comm::begin_quantized(const Call& call) {
  quantized_.cancel();
  return begin_on_host(call, quantized_.begin(call, simd_));
}

Result<bool> Comm::begin_next_exchange() {
  if (!quantized_.in_progress()) return false;
  const auto exchange = quantized_.next();
  if (!exchange) return false;
  const auto operation_began = began_;
  STRAIT_TRY(begin_on_host(quantized_.call(), *exchange));
  began_ = operation_began;
  return true;
}

Status Comm::begin_on_host(const Call& call, const Call& carried) {
  if (unheard_) STRAIT_TRY(watch_->compare_calls(unheard_->sequence, unheard_->signature));
  is_collective_ = true;
  signature_ = numbered(signature(call), ++sequence_);
  begin_waiting();
  program_ = nullptr;
  transport_->post_call(sequence_, signature_, carried.send, carried.receive);
  if (watch_->has_failed()) return watch_->sticky();  // post_call() may have received news of a failure
  const bool empty =
      call.count == 0 && call.collective != Collective::barrier && call.collective != Collective::all_to_all_v;
  hears_all_ = !empty && !has_root(call.collective);
  if (!hears_all_) unheard_ = Unheard{sequence_, signature_};
  if (empty) {
    recorder_->finish(sequence_, true);
    return {};
  }
  auto program = programs_->find(carried, sequence_);
  // Peers are on their way into this operation: a rank that cannot take part must tell them.
  if (!program) return tl::unexpected(watch_->raise(std::move(program).error()));
  program_ = *program;
  program_->start({carried.send, carried.receive, sequence_, signature_});
  return {};
}

Status Comm::check_messages(std::span<const Call> calls) const {
  if (calls.empty() || has_failed()) return {};  // begin_messages() returns the failure instead
  STRAIT_TRY(check_own_messages(calls, rank_));
  return device_ ? Status() : check_no_overlap(calls, rank_);
}

Status Comm::begin_messages(std::span<const Call> calls) {
  if (has_failed()) return watch_->sticky();
  if (device_) {
    STRAIT_TRY(check_streams(calls));
    program_ = nullptr;
    recorder_->post_messages(calls);
    return launched(calls.front(), 0, device_->enqueue_messages(calls));
  }
  return begin_messages_on_host(calls, nullptr);
}

Status Comm::run_messages(std::span<const Call> calls, MessagePieces& pieces) {
  if (has_failed()) return watch_->sticky();
  STRAIT_TRY(check_own_messages(calls, rank_));
  STRAIT_TRY(begin_messages_on_host(calls, &pieces));
  return finish();
}

Status Comm::begin_messages_on_host(std::span<const Call> calls, MessagePieces* pieces) {
  is_collective_ = false;
  recorder_->post_messages(calls);
  signature_ = signature(calls.front());
  begin_waiting();
  auto program = programs_->make_for_messages(calls, pieces);
  if (!program) return tl::unexpected(watch_->raise(std::move(program).error()));
  program_ = *program;
  program_->start({nullptr, nullptr, 0, signature_});
  return {};
}

Result<Comm::State> Comm::progress() {
  if (!transport_->reaches_buffers()) return program_->progress();
  if (!watch_->begin_step(operation())) return tl::unexpected(watch_->sticky().error());
  const AtScopeEnd ends([this] { watch_->end_step(); });
  return program_->progress();
}

Result<Comm::State> Comm::step() {
  if (program_ == nullptr) return State::done;
  auto state = progress();
  if (!state) {
    Error error = std::move(state).error();
    if (const auto& foreign = program_->foreign())
      error = differ_as_messages(foreign->expected, foreign->seen)
                  ? watch_->mismatch_of_messages(foreign->expected, foreign->rank, foreign->seen)
                  : watch_->mismatch(foreign->expected, foreign->rank, foreign->seen);
    program_ = nullptr;
    return tl::unexpected(end_in(std::move(error)));
  }
  if (*state == State::done) {
    if (is_collective_ && hears_all_) {
      STRAIT_ASSIGN(const bool compared, compare_with_heard());
      if (!compared) return State::idle;
    }
    program_ = nullptr;
    if (has_waited_) watch_->forget_awaited();
    if (is_collective_)
      recorder_->finish(sequence_, !has_waited_);
    else
      recorder_->finish_messages(!has_waited_);
    STRAIT_ASSIGN(const bool goes_on, begin_next_exchange());
    if (goes_on) return State::advanced;
  }
  if (*state == State::advanced) backoff_ = {};
  return state;
}

Result<bool> Comm::compare_with_heard() {
  // Every rank posted its call before it took part in this one, so all can be compared. Barriers need that, because
  // their signals carry no signature.
  const bool is_barrier = collective_of(signature_) == Collective::barrier;
  if ((is_barrier || unheard_) && !transport_->has_peer_calls(sequence_)) return false;
  if (is_barrier) STRAIT_TRY(watch_->compare_calls(sequence_, signature_));
  if (!unheard_) return true;
  const Unheard last = *std::exchange(unheard_, std::nullopt);
  STRAIT_TRY(watch_->compare_calls(last.sequence, last.signature));
  return true;
}

void Comm::begin_waiting() {
  backoff_ = {};
  has_waited_ = false;
  if (watch_->has_deadline()) began_ = std::chrono::steady_clock::now();
}

Status Comm::pause() {
  has_waited_ = true;
  Status paused = watch_->pause(backoff_, waiting());
  if (!paused) abandon();
  return paused;
}

Watch::Waiting Comm::waiting() const {
  return {is_collective_ ? sequence_ : 0, signature_, began_,
          [this] { return program_ == nullptr ? std::vector<std::uint32_t>{} : program_->awaited_ranks(); }};
}

}  // namespace strait
