#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "calls/call.hpp"

/// Groups of sends and receives, for tests.
namespace strait::testing {

struct Sent {
  std::uint32_t from, to;
  std::size_t bytes;
};
/// Messages of a group, in the order in which they are posted.
using Messages = std::vector<Sent>;
using Random = std::mt19937_64;

inline Messages random_messages(Random& random, std::uint32_t ranks, const std::vector<std::size_t>& lengths) {
  Messages messages(random() % 10 + 1);
  for (Sent& message : messages) {
    message.from = static_cast<std::uint32_t>(random() % ranks);
    message.to = static_cast<std::uint32_t>(random() % ranks);
    message.bytes = lengths[random() % lengths.size()];
  }
  return messages;
}

/// Returns at most one message between each ordered pair of different ranks, in an order in which the ranks can make
/// their calls one after another without a group.
inline Messages messages_in_order(Random& random, std::uint32_t ranks, const std::vector<std::size_t>& lengths) {
  Messages messages;
  for (std::uint32_t from = 0; from < ranks; ++from)
    for (std::uint32_t to = 0; to < ranks; ++to)
      if (from != to && random() % 4 != 0) messages.push_back({from, to, lengths[random() % lengths.size()]});
  std::shuffle(messages.begin(), messages.end(), random);
  return messages;
}

/// Returns what `rank` posts for these messages: its sends in their order and its receives in theirs, interleaved at
/// random. `buffer_of(number, sends)` gives the buffer of message `number` at its sender or receiver.
template <class BufferOf>
std::vector<Call> calls_of(const Messages& messages, std::uint32_t rank, Random& random, BufferOf&& buffer_of) {
  std::vector<Call> ends[2], calls;
  for (std::size_t number = 0; number < messages.size(); ++number)
    for (const bool sends : {false, true}) {
      const Sent& message = messages[number];
      if ((sends ? message.from : message.to) != rank) continue;
      Call call;
      call.collective = Collective::send_recv;
      call.count = message.bytes;
      call.sends = sends;
      call.peer = sends ? message.to : message.from;
      std::byte* const buffer = buffer_of(number, sends);
      call.send = sends ? buffer : nullptr;
      call.receive = sends ? nullptr : buffer;
      ends[sends ? 1 : 0].push_back(call);
    }
  for (std::size_t next[2] = {0, 0}; calls.size() < ends[0].size() + ends[1].size();) {
    const std::size_t which = next[0] == ends[0].size() ? 1 : next[1] == ends[1].size() ? 0 : random() % 2;
    calls.push_back(ends[which][next[which]++]);
  }
  return calls;
}

/// As calls_of(), but all calls are in the order of the messages.
template <class BufferOf>
std::vector<Call> calls_in_order(const Messages& messages, std::uint32_t rank, BufferOf&& buffer_of) {
  std::vector<Call> calls;
  Random unused;
  for (std::size_t number = 0; number < messages.size(); ++number)
    for (Call& call :
         calls_of({messages[number]}, rank, unused, [&](std::size_t, bool sends) { return buffer_of(number, sends); }))
      calls.push_back(std::move(call));
  return calls;
}

}  // namespace strait::testing
