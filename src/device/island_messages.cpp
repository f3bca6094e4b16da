#include "device/island_messages.hpp"

#include <algorithm>

namespace strait {

SplitMessages split_messages(std::span<const Call> messages, const Island& island, std::uint32_t self) {
  SplitMessages split;
  std::vector<Call> own;
  for (const Call& message : messages) {
    const auto place = std::find(island.begin(), island.end(), message.peer);
    auto& part = message.peer == self ? own : place != island.end() ? split.inside : split.others;
    part.push_back(message);
    if (&part == &split.inside) part.back().peer = static_cast<std::uint32_t>(place - island.begin());
  }
  if (split.inside.empty() && !split.others.empty()) {
    split.others.insert(split.others.end(), own.begin(), own.end());
    return split;
  }
  for (Call& message : own) {
    message.peer = static_cast<std::uint32_t>(std::find(island.begin(), island.end(), self) - island.begin());
    split.inside.push_back(std::move(message));
  }
  return split;
}

Result<CallOrder::Tail> IslandMessages::enqueue(std::span<const Call> messages, const Launch& launch) {
  const auto [inside, others] = split_messages(messages, setup_.island, setup_.rank);
  void* const stream = messages.front().stream;
  std::vector<DeviceLaunch> launches = setup_.inside.launches_of(inside);
  std::vector<DeviceLaunch> beside = setup_.others.launches_of(others);
  if (launches.empty()) launches.swap(beside);
  if (beside.empty()) {
    for (DeviceLaunch& each : launches) STRAIT_TRY(launch(each, stream));
    return launches.empty() ? CallOrder::Tail::other : CallOrder::Tail::counted_launch;
  }
  STRAIT_ASSIGN(void* const side, setup_.side->fork(stream));
  const auto launch_all = [&]() -> Status {
    auto next = beside.begin();
    for (DeviceLaunch& each : launches) {
      for (; next != beside.end() && next->turn < each.turn; ++next) STRAIT_TRY(launch(*next, side));
      STRAIT_TRY(launch(each, stream));
    }
    for (; next != beside.end(); ++next) STRAIT_TRY(launch(*next, side));
    return {};
  };
  const Status done = launch_all();
  STRAIT_TRY(setup_.side->join(stream));  // even after a failure: a capture must end with all forks joined
  STRAIT_TRY(done);
  return CallOrder::Tail::other;
}

}  // namespace strait
