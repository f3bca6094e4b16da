#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "peers.hpp"
#include "support/random_messages.hpp"

/// Groups of messages for the copy engines, with their buffers and the expected contents.
namespace strait::testing {

/// One rank's share of a group of messages: its send and receive buffers, at unaligned addresses and with guard bytes
/// around what it receives.
class OwnMessages {
 public:
  OwnMessages(const Messages& all, std::uint32_t rank, std::uint64_t seed) : rank_(rank), seed_(seed), all_(all) {
    for (std::size_t number = 0; number < all.size(); ++number) {
      const bool sends = all[number].from == rank, receives = all[number].to == rank;
      buffers_.emplace_back(sends ? data_of(number) : Bytes{},
                            receives ? Bytes(guard + all[number].bytes + guard, fill) : Bytes{});
    }
    Random random(seed + rank);
    for (const Call& call : calls_of(all, rank, random, [this](std::size_t number, bool sends) {
           return sends ? buffers_[number].first.data() : buffers_[number].second.data() + guard;
         }))
      if (call.count != 0)
        ends_.push_back({.sends = call.sends,
                         .peer = call.peer,
                         .data = static_cast<std::byte*>(call.sends ? const_cast<void*>(call.send) : call.receive),
                         .bytes = call.count,
                         .hash = static_cast<std::uint32_t>(mix(call.count))});
  }
  /// Returns the messages that copy engines carry (those that are not empty). They point into this object.
  const std::vector<copy_engine::Message>& ends() const { return ends_; }
  void wipe() {
    for (auto& buffer : buffers_) std::fill(buffer.second.begin(), buffer.second.end(), fill);
  }
  void check() const {
    for (std::size_t number = 0; number < all_.size(); ++number) {
      const Bytes& received = buffers_[number].second;
      if (all_[number].to != rank_) continue;
      Bytes expected(guard, fill);
      const Bytes data = data_of(number);
      expected.insert(expected.end(), data.begin(), data.end());
      expected.insert(expected.end(), guard, fill);
      EXPECT_TRUE(received == expected) << "message " << number << " of " << all_[number].bytes << " bytes from "
                                        << all_[number].from << " to " << rank_;
    }
  }

 private:
  static constexpr std::byte fill{0xa5};
  static constexpr std::size_t guard = 67;
  Bytes data_of(std::size_t number) const {
    return random_elements(DataType::uint8, all_[number].bytes, mix(seed_) + number);
  }
  std::uint32_t rank_;
  std::uint64_t seed_;
  const Messages& all_;
  std::vector<std::pair<Bytes, Bytes>> buffers_;
  std::vector<copy_engine::Message> ends_;
};

inline constexpr std::size_t message_slot = peer_window_bytes / copy_engine::PeerMessages::depth;

/// Lengths around those of slots and windows, and some of many slots or windows.
inline const std::vector<std::size_t>& message_lengths() {
  static const std::vector<std::size_t> lengths{0,
                                                1,
                                                1000,
                                                message_slot - 1,
                                                message_slot,
                                                message_slot + 1,
                                                2 * message_slot,
                                                3 * message_slot + 5,
                                                peer_window_bytes - 1,
                                                peer_window_bytes,
                                                peer_window_bytes + 1,
                                                5 * message_slot,
                                                6 * message_slot + 1,
                                                2 * peer_window_bytes + 77,
                                                100'000};
  return lengths;
}

}  // namespace strait::testing
