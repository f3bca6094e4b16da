// What a communicator asks of the streams that GPU ranks' calls are given.
#include <optional>
#include <utility>

#include "communicator/comm.hpp"

namespace strait {

Result<bool> Comm::is_captured(const Call& call) {
  auto captured = device_->is_capturing(call.stream);
  if (captured || captured.error().code == Code::invalid_usage) return captured;
  return tl::unexpected(launched(call, 0, tl::unexpected(std::move(captured).error())).error());
}

/// Messages of a group are one operation, on the first one's stream: in its graph or, if it is not captured, now. All
/// streams are asked before a peer hears of any message.
Status Comm::check_streams(std::span<const Call> messages) {
  std::optional<bool> captured;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (i != 0 && messages[i].stream == messages[i - 1].stream) continue;
    STRAIT_ASSIGN(const bool is_one, is_captured(messages[i]));
    if (captured.value_or(is_one) != is_one)
      return fail(Code::invalid_usage, describe(signature(messages[i])) + " on " + watch_->name_of(rank_) +
                                           ": the sends and receives of a group run together, and some of their "
                                           "streams are being captured and others are not. Capture all of these "
                                           "streams into one graph, or none");
    captured = is_one;
  }
  return {};
}

Status Comm::order_streams(const Call& first, const Call& then) {
  Status ordered = device_->order_streams(first.stream, then.stream);
  // A stream that is refused changes nothing.
  if (ordered || ordered.error().code == Code::invalid_usage) return ordered;
  Error error = std::move(ordered).error();
  error.message = "the streams of a group's calls, such as " + describe(signature(then)) + ", on " +
                  watch_->name_of(rank_) + ": " + error.message;
  return tl::unexpected(watch_->raise(std::move(error)));
}

}  // namespace strait
