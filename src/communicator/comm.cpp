// An operation of a communicator: from a valid call to its completion.
#include "communicator/comm.hpp"

#include <algorithm>
#include <bitset>
#include <utility>

#include "calls/hops.hpp"
#include "kernels/launch.hpp"

namespace strait {
namespace {

constexpr int quick_tries = 8;

}  // namespace

Error Comm::raise_out_of_memory() {
  last_memory_.reset();
  Error error{Code::out_of_memory,
              "no memory left to prepare the operation. Check the limit of address space (ulimit -v) and the memory "
              "limit of the container"};
  return host_ ? host_->end_in(std::move(error)) : watch_->raise(std::move(error));
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

/// For this thread a call is done once it is enqueued: from then on it belongs to its stream.
Status Comm::begin_on_device(std::span<const Call> calls) {
  const Call& first = calls.front();
  const std::uint64_t number = collectives_->next();
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
      collectives_->capture();
    } else {
      collectives_->post(signature(call), call.send, call.receive);
      recorder_->set_stream(collectives_->last(), call.stream);
    }
  }
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
  const bool is_counted = number != 0 && number <= collectives_->last();  // captured calls are not
  error.message = describe(signature(call)) + (is_counted ? ", collective number " + std::to_string(number) : "") +
                  " on " + watch_->name_of(rank_) + ": " + error.message;
  if (error.code == Code::cuda_error) error.message += " (CUDA may report here what earlier work on this GPU did)";
  return tl::unexpected(watch_->raise(std::move(error)));
}

Status Comm::check_algorithm(const Call& call) const {
  if (call.algorithm == nullptr) return {};
  const std::string name(call.algorithm->name);
  const bool supported = device_ ? hops_of(name) != Hops::chosen : host_->supports(call);
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
  return device_ ? begin_on_device({&call, 1}) : host_->begin(call);
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
    recorder_->post_messages(calls);
    return launched(calls.front(), 0, device_->enqueue_messages(calls));
  }
  return host_->begin_messages(calls, nullptr);
}

Status Comm::run_messages(std::span<const Call> calls, MessagePieces& pieces) {
  if (has_failed()) return watch_->sticky();
  STRAIT_TRY(check_own_messages(calls, rank_));
  STRAIT_TRY(host_->begin_messages(calls, &pieces));
  return finish();
}

}  // namespace strait
