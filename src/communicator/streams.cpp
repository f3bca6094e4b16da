// What a communicator asks of the streams to which calls of GPU ranks are given.
#include <cstdint>
#include <optional>
#include <utility>

#include "communicator/comm.hpp"

namespace strait {

Result<std::uint64_t> Comm::capture_of(const Call& call) {
  auto capture = device_->capture_of(call.stream);
  if (capture || capture.error().code == Code::invalid_usage) return capture;
  return tl::unexpected(launched(call, 0, tl::unexpected(std::move(capture).error())).error());
}

/// The messages of a group are one operation on the stream of the first: in its graph or, if it is not captured, now.
/// All streams are asked before a peer hears of any message.
Status Comm::check_streams(std::span<const Call> messages) {
  std::optional<std::uint64_t> all;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (i != 0 && messages[i].stream == messages[i - 1].stream) continue;
    STRAIT_ASSIGN(const std::uint64_t capture, capture_of(messages[i]));
    if (all.value_or(capture) != capture)
      return fail(Code::invalid_usage, describe(signature(messages[i])) + " on " + watch_->name_of(rank_) +
                                           ": the sends and receives of a group run together, and some of their "
                                           "streams are being captured and others are not, or into another graph. "
                                           "Capture all of these streams into one graph, or none");
    all = capture;
  }
  return {};
}

Status Comm::order_streams(const Call& first, const Call& then) {
  Status ordered = device_->order_streams(first.stream, then.stream);
  // After a refusal nothing has changed.
  if (ordered || ordered.error().code == Code::invalid_usage) return ordered;
  Error error = std::move(ordered).error();
  error.message = "the streams of a group's calls, such as " + describe(signature(then)) + ", on " +
                  watch_->name_of(rank_) + ": " + error.message;
  return tl::unexpected(watch_->raise(std::move(error)));
}

}  // namespace strait
