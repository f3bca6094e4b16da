#include "communicator/device_operations.hpp"

#include <bitset>
#include <optional>
#include <string>
#include <utility>

#include "kernels/launch.hpp"

namespace strait {

Status DeviceOperations::prepare(const Call& call) {
  Status prepared = device_.prepare_call(call);
  // After a refusal nothing has changed. Of any other error, such as a lack of memory, peers must hear.
  if (prepared || prepared.error().code == Code::invalid_usage) return prepared;
  return tl::unexpected(watch_.raise(std::move(prepared).error()));
}

Status DeviceOperations::begin(std::span<const Call> calls) {
  const Call& first = calls.front();
  const std::uint64_t number = collectives_.next();
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
      collectives_.capture();
    } else {
      collectives_.post(signature(call), call.send, call.receive);
      recorder_.set_stream(collectives_.last(), call.stream);
    }
  }
  return launched(first, number, calls.size() == 1 ? device_.enqueue(first) : device_.enqueue_aggregate(calls));
}

Status DeviceOperations::begin_messages(std::span<const Call> messages) {
  STRAIT_TRY(check_streams(messages));
  recorder_.post_messages(messages);
  return launched(messages.front(), 0, device_.enqueue_messages(messages));
}

/// CUDA's errors tell what CUDA was asked for, but not for which operation.
Status DeviceOperations::launched(const Call& call, std::uint64_t number, Status result) {
  if (result) return {};
  Error error = std::move(result).error();
  const bool is_counted = number != 0 && number <= collectives_.last();  // captured calls are not
  error.message = describe(signature(call)) + (is_counted ? ", collective number " + std::to_string(number) : "") +
                  " on " + own_name() + ": " + error.message;
  if (error.code == Code::cuda_error) error.message += " (CUDA may report here what earlier work on this GPU did)";
  return tl::unexpected(watch_.raise(std::move(error)));
}

Result<std::uint64_t> DeviceOperations::capture_of(const Call& call) {
  auto capture = device_.capture_of(call.stream);
  if (capture || capture.error().code == Code::invalid_usage) return capture;
  return tl::unexpected(launched(call, 0, tl::unexpected(std::move(capture).error())).error());
}

/// The messages of a group are one operation on the stream of the first: in its graph or, if it is not captured, now.
/// All streams are asked before a peer hears of any message.
Status DeviceOperations::check_streams(std::span<const Call> messages) {
  std::optional<std::uint64_t> all;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (i != 0 && messages[i].stream == messages[i - 1].stream) continue;
    STRAIT_ASSIGN(const std::uint64_t capture, capture_of(messages[i]));
    if (all.value_or(capture) != capture)
      return fail(Code::invalid_usage, describe(signature(messages[i])) + " on " + own_name() +
                                           ": the sends and receives of a group run together, and some of their "
                                           "streams are being captured and others are not, or into another graph. "
                                           "Capture all of these streams into one graph, or none");
    all = capture;
  }
  return {};
}

Status DeviceOperations::order_streams(const Call& first, const Call& then) {
  Status ordered = device_.order_streams(first.stream, then.stream);
  // After a refusal nothing has changed.
  if (ordered || ordered.error().code == Code::invalid_usage) return ordered;
  Error error = std::move(ordered).error();
  error.message = "the streams of a group's calls, such as " + describe(signature(then)) + ", on " + own_name() + ": " +
                  error.message;
  return tl::unexpected(watch_.raise(std::move(error)));
}

}  // namespace strait
