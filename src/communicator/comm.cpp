// An operation of a communicator: from a valid call to its completion.
#include "communicator/comm.hpp"

#include <algorithm>
#include <utility>

#include "calls/hops.hpp"

namespace strait {
namespace {

constexpr int quick_tries = 8;

}  // namespace

Error Comm::raise_out_of_memory() {
  last_memory_.reset();
  Error error{Code::out_of_memory,
              "no memory left to prepare the operation. Check the limit of address space (ulimit -v) and the memory "
              "limit of the container"};
  return host_operations_ ? host_operations_->end_in(std::move(error)) : watch_->raise(std::move(error));
}

void Comm::give_up_set_up(const Error& error) {
  last_memory_.reset();
  channel_->announce({Code::remote_error, channel_->self().describe() + " cannot go on: " + error.message});
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

Status Comm::await_device() const {
  if (device_) STRAIT_TRY(device_->await_work());
  return sticky();
}

Result<std::size_t> Comm::begin_first_of(std::span<Call> group) {
  const std::size_t together = device_ && !has_failed() ? device_->aggregated_calls(group) : 1;
  if (together == 1) return begin(group.front()).map([] { return std::size_t{1}; });
  for (Call& call : group.subspan(1, together - 1)) call.aggregated = true;
  return device_operations_->begin(group.first(together)).map([&] { return together; });
}

Status Comm::check_algorithm(const Call& call) const {
  if (call.algorithm == nullptr) return {};
  const std::string name(call.algorithm->name);
  const bool supported = device_ ? hops_of(name) != Hops::chosen : host_operations_->supports(call);
  if (supported) return {};
  return fail(Code::invalid_argument, describe(signature(call)) + " on " + std::to_string(ranks_) +
                                          (device_ ? " GPU ranks: calls take one_hop or two_hop there, not "
                                                   : " ranks cannot be carried out by ") +
                                          name + ". Leave `algorithm` out of its options to have one chosen");
}

Status Comm::prepare(const Call& call) {
  STRAIT_TRY(check_algorithm(call));
  return device_operations_ && !has_failed() ? device_operations_->prepare(call) : Status();
}

Status Comm::begin(const Call& call) {
  if (has_failed()) return watch_->sticky();
  return device_operations_ ? device_operations_->begin({&call, 1}) : host_operations_->begin(call);
}

Status Comm::check_messages(std::span<const Call> calls) const {
  if (calls.empty() || has_failed()) return {};  // begin_messages() returns the failure instead
  STRAIT_TRY(check_own_messages(calls, rank_));
  return device_ ? Status() : check_no_overlap(calls, rank_);
}

Status Comm::begin_messages(std::span<const Call> calls) {
  if (has_failed()) return watch_->sticky();
  return device_operations_ ? device_operations_->begin_messages(calls)
                            : host_operations_->begin_messages(calls, nullptr);
}

Status Comm::run_messages(std::span<const Call> calls, MessagePieces& pieces) {
  if (has_failed()) return watch_->sticky();
  STRAIT_TRY(check_own_messages(calls, rank_));
  STRAIT_TRY(host_operations_->begin_messages(calls, &pieces));
  return finish();
}

}  // namespace strait
