#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/random_data.hpp"
#include "support/random_messages.hpp"

/// Buffers and contents of groups of sends and receives, for tests.
namespace strait::testing {

/// The buffer of one end of a message, `misalignment` bytes off its alignment, with guards around it.
class MessageBuffer {
 public:
  MessageBuffer(std::size_t bytes, std::size_t misalignment) : memory_(bytes + 2 * guard_bytes, poison), bytes_(bytes) {
    offset_ = guard_bytes - misalignment;
  }
  std::byte* data() { return memory_.data() + offset_; }
  Bytes contents() const {
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(offset_);
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes_)};
  }
  bool guards_are_whole() const {
    const auto is_poison = [](std::byte b) { return b == poison; };
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(offset_);
    return std::all_of(memory_.begin(), begin, is_poison) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), memory_.end(), is_poison);
  }

 private:
  static constexpr std::size_t guard_bytes = 64;
  static constexpr std::byte poison{0xa5};
  Bytes memory_;
  std::size_t bytes_;
  std::size_t offset_;
};

/// The buffers of both ends of every message of one group. Some of them are misaligned.
struct MessageMemory {
  MessageMemory(const Messages& messages, std::uint64_t seed) {
    for (const Sent& message : messages) {
      const std::uint64_t bits = mix(seed * 1000 + send.size());
      send.emplace_back(message.bytes, bits % 4 == 0 ? 1 : 0);
      receive.emplace_back(message.bytes, bits % 5 == 0 ? 3 : 0);
      data.push_back(random_elements(DataType::uint8, message.bytes, bits));
      std::copy(data.back().begin(), data.back().end(), send.back().data());
    }
  }
  void expect_received(const Messages& messages) const {
    for (std::size_t number = 0; number < messages.size(); ++number) {
      const Sent& message = messages[number];
      EXPECT_TRUE(receive[number].contents() == data[number])
          << "message " << number << " of " << message.bytes << " bytes from " << message.from << " to " << message.to;
      EXPECT_TRUE(receive[number].guards_are_whole());
    }
  }
  std::vector<MessageBuffer> send, receive;
  std::vector<Bytes> data;
};

}  // namespace strait::testing
