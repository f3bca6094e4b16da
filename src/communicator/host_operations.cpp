#include "communicator/host_operations.hpp"

#include <string>
#include <utility>
#include <vector>

#include "base/at_scope_end.hpp"

namespace strait {

HostOperations::HostOperations(const Parts& parts, const HostPrograms::Setup& setup, Selector selector)
    : transport_(parts.transport),
      watch_(parts.watch),
      recorder_(parts.recorder),
      collectives_(parts.collectives),
      rank_(setup.rank),
      ranks_(setup.ranks),
      simd_(setup.simd),
      programs_(setup, std::move(selector), parts.transport),
      quantized_(rank_, ranks_, setup.averaged != 0 ? setup.averaged : ranks_) {}

Status HostOperations::begin(const Call& call) {
  if (call.op != ReduceOp::premul_sum) return begin_contribution(call);
  return begin_contribution(contribution_.make(call, rank_, ranks_, simd_));
}

Status HostOperations::begin_contribution(const Call& call) {
  if (!is_encoded(call, ranks_)) return begin_carried(call, call);
  quantized_.cancel();
  return begin_carried(call, quantized_.begin(call, simd_));
}

Result<bool> HostOperations::begin_next_exchange() {
  if (!quantized_.in_progress()) return false;
  const auto exchange = quantized_.next();
  if (!exchange) return false;
  const auto operation_began = began_;
  STRAIT_TRY(begin_carried(quantized_.call(), *exchange));
  began_ = operation_began;
  return true;
}

Status HostOperations::begin_carried(const Call& call, const Call& carried) {
  if (unheard_) STRAIT_TRY(watch_.compare_calls(unheard_->sequence, unheard_->signature));
  is_collective_ = true;
  signature_ = numbered(signature(call), collectives_.next());
  begin_waiting();
  program_ = nullptr;
  collectives_.post(signature_, carried.send, carried.receive);
  if (watch_.has_failed()) return watch_.sticky();  // post() may have received news of a failure
  const bool empty =
      call.count == 0 && call.collective != Collective::barrier && call.collective != Collective::all_to_all_v;
  hears_all_ = !empty && !has_root(call.collective);
  if (!hears_all_) unheard_ = Unheard{collectives_.last(), signature_};
  if (empty) {
    recorder_.finish(collectives_.last(), true);
    return {};
  }
  auto program = programs_.find(carried, collectives_.last());
  // Peers are on their way into this operation: a rank that cannot take part must tell them.
  if (!program) return tl::unexpected(watch_.raise(std::move(program).error()));
  program_ = *program;
  program_->start({carried.send, carried.receive, collectives_.last(), signature_});
  return {};
}

Status HostOperations::begin_messages(std::span<const Call> messages, MessagePieces* pieces) {
  is_collective_ = false;
  recorder_.post_messages(messages);
  signature_ = signature(messages.front());
  begin_waiting();
  auto program = programs_.make_for_messages(messages, pieces);
  if (!program) return tl::unexpected(watch_.raise(std::move(program).error()));
  program_ = *program;
  program_->start({nullptr, nullptr, 0, signature_});
  return {};
}

Result<HostProgram::State> HostOperations::progress() {
  if (!transport_.reaches_buffers()) return program_->progress();
  if (!watch_.begin_step(operation())) return tl::unexpected(watch_.sticky().error());
  const AtScopeEnd ends([this] { watch_.end_step(); });
  return program_->progress();
}

Result<HostProgram::State> HostOperations::step() {
  using State = HostProgram::State;
  if (program_ == nullptr) return State::done;
  auto state = progress();
  if (!state) {
    Error error = std::move(state).error();
    if (const auto& foreign = program_->foreign())
      error = differ_as_messages(foreign->expected, foreign->seen)
                  ? watch_.mismatch_of_messages(foreign->expected, foreign->rank, foreign->seen)
                  : watch_.mismatch(foreign->expected, foreign->rank, foreign->seen);
    program_ = nullptr;
    return tl::unexpected(end_in(std::move(error)));
  }
  if (*state == State::done) {
    if (is_collective_ && hears_all_) {
      STRAIT_ASSIGN(const bool compared, compare_with_heard());
      if (!compared) return State::idle;
    }
    program_ = nullptr;
    if (has_waited_) watch_.forget_awaited();
    if (is_collective_)
      recorder_.finish(collectives_.last(), !has_waited_);
    else
      recorder_.finish_messages(!has_waited_);
    STRAIT_ASSIGN(const bool goes_on, begin_next_exchange());
    if (goes_on) return State::advanced;
  }
  if (*state == State::advanced) backoff_ = {};
  return state;
}

Result<bool> HostOperations::compare_with_heard() {
  // Every rank posted its call before it took part in this one, so all can be compared. Barriers need that, because
  // their signals carry no signature.
  const bool is_barrier = collective_of(signature_) == Collective::barrier;
  if ((is_barrier || unheard_) && !transport_.has_peer_calls(collectives_.last())) return false;
  if (is_barrier) STRAIT_TRY(watch_.compare_calls(collectives_.last(), signature_));
  if (!unheard_) return true;
  const Unheard last = *std::exchange(unheard_, std::nullopt);
  STRAIT_TRY(watch_.compare_calls(last.sequence, last.signature));
  return true;
}

void HostOperations::begin_waiting() {
  backoff_ = {};
  has_waited_ = false;
  if (watch_.has_deadline()) began_ = std::chrono::steady_clock::now();
}

Status HostOperations::pause() {
  has_waited_ = true;
  Status paused = watch_.pause(backoff_, waiting());
  if (!paused) abandon();
  return paused;
}

Watch::Waiting HostOperations::waiting() const {
  return {is_collective_ ? collectives_.last() : 0, signature_, began_,
          [this] { return program_ == nullptr ? std::vector<std::uint32_t>{} : program_->awaited_ranks(); }};
}

Error HostOperations::end_in(Error error) {
  error = watch_.raise(std::move(error));
  abandon();
  return error;
}

void HostOperations::abandon() {
  transport_.abandon();
  if (transport_.reaches_buffers()) watch_.await_steps(operation());
}

}  // namespace strait
