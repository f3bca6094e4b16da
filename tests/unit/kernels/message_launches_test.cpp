// The launches in which ranks that NVLink joins send and receive messages, whose kernels cannot run without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "communicator/device_calls.hpp"
#include "kernels/layout.hpp"
#include "support/random_messages.hpp"

namespace strait::testing {
namespace {

using kernels::Exchange;
using kernels::Wire;

/// What ranks that NVLink joins make of calls.
DeviceCalls nvlink_calls(std::uint32_t rank, std::uint32_t ranks, std::uint32_t max_sms) {
  const auto layout = kernels::arena_layout(kernels::ArenaKind::nvlink, ranks);
  kernels::Ring ring{};
  ring.rank = rank;
  ring.ranks = ranks;
  std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
  return {ring, nullptr, {max_sms, std::size_t{16} << 20, ""}};
}

/// As if there were no slots between them: a message moves while both of its ranks run a launch that has it, and a
/// launch ends when all of its messages have moved.
class Rendezvous {
 public:
  explicit Rendezvous(std::vector<std::vector<DeviceLaunch>> launches) : launches_(std::move(launches)) {
    ranks_.resize(launches_.size());
  }
  void expect_all_end() {
    while (move_messages())
      for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) end_launch(rank);
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
      EXPECT_EQ(ranks_[rank].launch, launches_[rank].size()) << "rank " << rank << " waits for ever";
  }

 private:
  struct Rank {
    std::size_t launch = 0;
    std::set<std::uint32_t> sent, received;  ///< in this launch: peers
  };
  const DeviceLaunch* current(std::uint32_t rank) const {
    return ranks_[rank].launch == launches_[rank].size() ? nullptr : &launches_[rank][ranks_[rank].launch];
  }
  static const Exchange& exchange(const DeviceLaunch& launch) { return std::get<Exchange>(launch.argument); }

  bool move_messages() {
    bool moved = false;
    for (std::uint32_t from = 0; from < ranks_.size(); ++from)
      for (std::uint32_t to = 0; to < ranks_.size(); ++to) {
        const DeviceLaunch *sender = current(from), *receiver = current(to);
        if (sender == nullptr || receiver == nullptr || sender->wire != receiver->wire) continue;
        const kernels::Message &out = exchange(*sender).send[to], &in = exchange(*receiver).receive[from];
        if (out.bytes == 0 || in.bytes == 0) continue;
        if (ranks_[from].sent.contains(to) || ranks_[to].received.contains(from)) continue;
        EXPECT_EQ(out.data, in.data) << "another message";
        EXPECT_EQ(std::tie(out.bytes, out.chunk_bytes, out.lanes, out.call_hash),
                  std::tie(in.bytes, in.chunk_bytes, in.lanes, in.call_hash));
        ranks_[from].sent.insert(to);
        ranks_[to].received.insert(from);
        moved = true;
      }
    return moved;
  }
  void end_launch(std::uint32_t number) {
    const DeviceLaunch* launch = current(number);
    if (launch == nullptr) return;
    Rank& rank = ranks_[number];
    for (std::uint32_t peer = 0; peer < ranks_.size(); ++peer)
      if ((exchange(*launch).send[peer].bytes != 0 && !rank.sent.contains(peer)) ||
          (exchange(*launch).receive[peer].bytes != 0 && !rank.received.contains(peer)))
        return;
    rank = {rank.launch + 1, {}, {}};
  }

  std::vector<std::vector<DeviceLaunch>> launches_;
  std::vector<Rank> ranks_;
};

constexpr std::uint32_t few_sms = 24;
constexpr std::size_t kb = 1 << 10;

const std::vector<std::size_t> any_length{0, 1, 1000, 500 * kb, 3000 * kb, 3001 * kb, 40'000 * kb, 256'000 * kb};
/// One for both ends of a message, which nobody touches.
std::byte* buffer_of(std::size_t number, bool /*sends*/) { return reinterpret_cast<std::byte*>((number + 1) << 32); }

TEST(MessagesOverNvlink, NoRankWaitsForEver) {
  std::size_t of_two_wires = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const auto ranks = static_cast<std::uint32_t>(random() % 7 + 2);
    const std::uint32_t max_sms = std::array{0u, few_sms, 1u}[random() % 3];
    const Messages messages = random_messages(random, ranks, any_length);
    std::vector<std::vector<DeviceLaunch>> launches;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      launches.push_back(nvlink_calls(rank, ranks, max_sms).launches_of(calls_of(messages, rank, random, buffer_of)));
      std::set<Wire> wires;
      for (const DeviceLaunch& launch : launches.back()) wires.insert(launch.wire);
      of_two_wires += wires.size() == 2 ? 1 : 0;
    }
    Rendezvous(std::move(launches)).expect_all_end();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(of_two_wires, 500u);
}

/// Whatever their wires, messages between two ranks go in the order of posting.
TEST(MessagesOverNvlink, OneByOneFromAGroup) {
  constexpr std::uint32_t ranks = 3;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    Messages messages = random_messages(random, ranks, any_length);
    for (Sent& message : messages) message = {0, message.to % (ranks - 1) + 1, message.bytes};
    std::vector<std::vector<DeviceLaunch>> launches(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const DeviceCalls calls = nvlink_calls(rank, ranks, few_sms);
      const std::vector<Call> posted = calls_of(messages, rank, random, buffer_of);
      const std::size_t at_once = rank == 0 ? posted.size() : 1;
      for (std::size_t first = 0; first < posted.size(); first += at_once)
        for (const DeviceLaunch& launch : calls.launches_of(std::span(posted).subspan(first, at_once)))
          launches[rank].push_back(launch);
    }
    Rendezvous(std::move(launches)).expect_all_end();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

/// A block takes the wire that one of its length takes in an all-to-all; a message too where blocks are few, else
/// lines.
TEST(MessagesOverNvlink, WireFollowsFromTheLength) {
  constexpr std::uint32_t ranks = 4;
  std::byte* const buffer = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
  for (const std::uint32_t max_sms : {0u, few_sms}) {
    const std::size_t border = max_sms == 0 ? 32'768 * kb : few_sms * 96 * kb;
    for (const std::size_t bytes : {std::size_t{1}, border, border + 1, 8 * border}) {
      const DeviceCalls calls = nvlink_calls(0, ranks, max_sms);
      Call call;
      call.collective = Collective::all_to_all;
      call.count = bytes;
      call.send = call.receive = buffer;
      Call with_lengths = call, message = call;
      with_lengths.collective = Collective::all_to_all_v;
      with_lengths.send_counts = with_lengths.receive_counts = std::vector<std::size_t>(ranks, bytes);
      with_lengths.send_offsets = with_lengths.receive_offsets = std::vector<std::size_t>(ranks, 0);
      message.collective = Collective::send_recv;
      message.sends = true;
      message.peer = 1;
      const Wire expected = bytes > border ? Wire::bulk : Wire::lines;
      const auto wire_of = [&](const std::vector<DeviceLaunch>& launches) {
        EXPECT_EQ(launches.size(), 1u) << bytes << " bytes, max_sms " << max_sms;
        return launches.at(0).wire;
      };
      EXPECT_EQ(wire_of(calls.launches_of(call)), expected) << bytes << " bytes, max_sms " << max_sms;
      EXPECT_EQ(wire_of(calls.launches_of(with_lengths)), expected) << bytes << " bytes, max_sms " << max_sms;
      EXPECT_EQ(wire_of(calls.launches_of(std::span(&message, 1))), max_sms == 0 ? Wire::lines : expected)
          << bytes << " bytes, max_sms " << max_sms;
    }
  }
}

}  // namespace
}  // namespace strait::testing
