// Launches by which ranks connected by NVLink send and receive messages. Their kernels cannot run without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "kernels/layout.hpp"
#include "launches/device_calls.hpp"
#include "plan/request.hpp"
#include "support/random_messages.hpp"

namespace strait::testing {
namespace {

using kernels::Exchange;
using kernels::Protocol;

/// Returns what makes launches of the calls of ranks connected by NVLink.
DeviceCalls nvlink_calls(std::uint32_t rank, std::uint32_t ranks, std::uint32_t max_sms, std::uint32_t most_blocks = 0,
                         std::uint32_t sms = 0, bool has_pipes = false) {
  const auto layout = kernels::arena_layout(kernels::ArenaKind::nvlink, ranks);
  kernels::Ring ring{.rank = rank, .ranks = ranks, .has_async_copies = has_pipes};
  std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
  DeviceCalls::Options options{.max_sms = max_sms, .flagged_bytes = 16 << 20, .most_blocks = most_blocks, .sms = sms};
  if (has_pipes) options.piped_unit_bytes = 2 << 20;
  return {ring, nullptr, options};
}

/// Simulates launches: a short message is sent once the one before it from this rank to that peer was received, a long
/// one moves while both of its ranks run a launch that has it, and a launch ends when all its messages are done. A
/// piped launch sends its messages round by round in step, and so it receives.
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
    std::set<std::uint32_t> sent, received;  ///< peers, in this launch
  };
  const DeviceLaunch* current(std::uint32_t rank) const {
    return ranks_[rank].launch == launches_[rank].size() ? nullptr : &launches_[rank][ranks_[rank].launch];
  }
  static const Exchange& exchange(const DeviceLaunch& launch) { return std::get<Exchange>(launch.argument); }

  /// Returns what the rank's current launch has yet to send to this peer with this protocol, or null.
  const kernels::Message* to_send(std::uint32_t rank, std::uint32_t to, Protocol protocol) const {
    const DeviceLaunch* launch = current(rank);
    if (launch == nullptr || launch->protocol != protocol || ranks_[rank].sent.contains(to)) return nullptr;
    return exchange(*launch).send[to].bytes != 0 ? &exchange(*launch).send[to] : nullptr;
  }
  const kernels::Message* to_receive(std::uint32_t rank, std::uint32_t from, Protocol protocol) const {
    const DeviceLaunch* launch = current(rank);
    if (launch == nullptr || launch->protocol != protocol || ranks_[rank].received.contains(from)) return nullptr;
    return exchange(*launch).receive[from].bytes != 0 ? &exchange(*launch).receive[from] : nullptr;
  }
  static void expect_alike(const kernels::Message& out, const kernels::Message& in) {
    EXPECT_EQ(out.data, in.data) << "another message";
    EXPECT_EQ(std::tie(out.bytes, out.chunk_bytes, out.lanes, out.call_hash),
              std::tie(in.bytes, in.chunk_bytes, in.lanes, in.call_hash));
  }

  bool move_messages() {
    bool moved = false;
    for (std::uint32_t from = 0; from < ranks_.size(); ++from)
      for (std::uint32_t to = 0; to < ranks_.size(); ++to) {
        std::optional<kernels::Message>& on_its_way = on_their_way_[{from, to}];
        if (const auto* in = to_receive(to, from, Protocol::lines); in != nullptr && on_its_way) {
          expect_alike(*on_its_way, *in);
          on_its_way.reset();
          ranks_[to].received.insert(from);
          moved = true;
        }
        if (const auto* out = to_send(from, to, Protocol::lines); out != nullptr && !on_its_way) {
          on_its_way = *out;
          ranks_[from].sent.insert(to);
          moved = true;
        }
        const auto *out = to_send(from, to, Protocol::bulk), *in = to_receive(to, from, Protocol::bulk);
        if (out == nullptr || in == nullptr || is_ahead(from, to)) continue;
        moved = true;
        if (++rounds_[{from, to}] < long_rounds) continue;
        expect_alike(*out, *in);
        ranks_[from].sent.insert(to);
        ranks_[to].received.insert(from);
        rounds_.erase({from, to});
      }
    return moved;
  }
  /// Returns whether this message is ahead of one with which either end of it goes in step.
  bool is_ahead(std::uint32_t from, std::uint32_t to) const {
    const auto rounds = [&](std::uint32_t sender, std::uint32_t receiver) {
      const auto known = rounds_.find({sender, receiver});
      return known == rounds_.end() ? 0 : known->second;
    };
    for (std::uint32_t other = 0; other < ranks_.size(); ++other) {
      const bool sends = current(from)->piped && to_send(from, other, Protocol::bulk) != nullptr;
      const bool receives = current(to)->piped && to_receive(to, other, Protocol::bulk) != nullptr;
      if (sends && rounds(from, other) < rounds(from, to)) return true;
      if (receives && rounds(other, to) < rounds(from, to)) return true;
    }
    return false;
  }
  void end_launch(std::uint32_t number) {
    const DeviceLaunch* now = current(number);
    if (now == nullptr) return;
    for (std::uint32_t peer = 0; peer < ranks_.size(); ++peer)
      if (to_send(number, peer, now->protocol) != nullptr || to_receive(number, peer, now->protocol) != nullptr) return;
    ranks_[number] = {ranks_[number].launch + 1, {}, {}};
  }

  static constexpr int long_rounds = 3;

  std::vector<std::vector<DeviceLaunch>> launches_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> rounds_;  ///< rounds done, of long messages under way
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::optional<kernels::Message>> on_their_way_;
};

constexpr std::uint32_t few_sms = 24;
constexpr std::size_t kb = 1 << 10;

const std::vector<std::size_t> any_length{0, 1, 1000, 500 * kb, 3000 * kb, 3001 * kb, 40'000 * kb, 256'000 * kb};
/// Returns an address that is the same for both ends of a message. Nothing accesses it.
std::byte* buffer_of(std::size_t number, bool /*sends*/) { return reinterpret_cast<std::byte*>((number + 1) << 32); }

TEST(MessagesOverNvlink, NoRankWaitsForEver) {
  std::size_t of_two_protocols = 0, in_pipes = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Random random(seed);
    const auto ranks = static_cast<std::uint32_t>(random() % 7 + 2);
    const std::uint32_t max_sms = std::array{0u, few_sms, 1u, 64u}[random() % 4];
    const bool has_pipes = random() % 2 == 0;
    const Messages messages = random_messages(random, ranks, any_length);
    std::vector<std::vector<DeviceLaunch>> launches;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      launches.push_back(
          nvlink_calls(rank, ranks, max_sms, 0, 0, has_pipes).launches_of(calls_of(messages, rank, random, buffer_of)));
      std::set<Protocol> protocols;
      for (const DeviceLaunch& launch : launches.back()) {
        protocols.insert(launch.protocol);
        in_pipes += launch.piped ? 1 : 0;
      }
      of_two_protocols += protocols.size() == 2 ? 1 : 0;
    }
    Rendezvous(std::move(launches)).expect_all_end();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(of_two_protocols, 500u);
  EXPECT_GT(in_pipes, 500u);
}

/// Messages between two ranks go in the order in which they are posted, whatever their protocols.
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

/// Some ranks post as a group what others post one by one, in an order in which all could. With one message from a rank
/// to another, launches must not wait in a circle, whichever ranks do so and whichever messages are short. (Messages
/// move as a whole here.) For pipes this holds unless few blocks are asked for.
TEST(MessagesOverNvlink, GroupsAndOthersDoNotWaitForEver) {
  std::size_t in_pipes = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    Random random(seed);
    const auto ranks = static_cast<std::uint32_t>(random() % 5 + 2);
    Messages messages = random_messages(random, ranks, any_length);
    std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
    std::erase_if(messages, [&](const Sent& m) { return m.from == m.to || !seen.insert({m.from, m.to}).second; });
    const bool has_pipes = random() % 2 == 0;
    const std::uint32_t max_sms = random() % 2 == 0 ? 0 : has_pipes ? 64 : few_sms;
    std::vector<std::vector<DeviceLaunch>> launches(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const DeviceCalls calls = nvlink_calls(rank, ranks, max_sms, 0, 0, has_pipes);
      const bool at_once = random() % 2 == 0;
      if (at_once) launches[rank] = calls.launches_of(calls_of(messages, rank, random, buffer_of));
      for (std::size_t number = 0; !at_once && number < messages.size(); ++number) {
        const auto own_buffer = [&](std::size_t, bool sends) { return buffer_of(number, sends); };
        const Messages one{messages[number]};
        for (const DeviceLaunch& launch : calls.launches_of(calls_of(one, rank, random, own_buffer)))
          launches[rank].push_back(launch);
      }
      for (const DeviceLaunch& launch : launches[rank]) in_pipes += launch.piped ? 1 : 0;
    }
    Rendezvous(std::move(launches)).expect_all_end();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(in_pipes, 1000u);
}

/// Different messages share a launch unless some are short and some are long.
TEST(MessagesOverNvlink, TakeAsFewLaunchesAsTheyCan) {
  const DeviceCalls calls = nvlink_calls(0, 4, 0);
  const auto launches = [&](const Messages& messages) {
    Random random(1);
    return calls.launches_of(calls_of(messages, 0, random, buffer_of)).size();
  };
  EXPECT_EQ(launches({{0, 1, 1}, {2, 0, 1000}, {0, 0, 1000}}), 1u);
  EXPECT_EQ(launches({{0, 1, 256'000 * kb}, {2, 0, 40'000 * kb}}), 1u);
  EXPECT_EQ(launches({{0, 1, 1}, {2, 0, 40'000 * kb}}), 2u);
  EXPECT_EQ(launches({{0, 1, 1}, {2, 0, 40'000 * kb}, {3, 0, 1}, {0, 0, 1}}), 3u);
  EXPECT_EQ(launches({{0, 1, 1}, {0, 1, 1}}), 2u);
}

TEST(MessagesOverNvlink, ThoseOfALaunchDoNotWaitForOneAnother) {
  constexpr std::size_t much = 40'000 * kb;
  const DeviceCalls calls = nvlink_calls(0, 4, 0), pair = nvlink_calls(0, 2, 0);
  const auto are_independent = [&](const Messages& messages, bool in_pair = false) {
    Random random(1);
    const auto launches = (in_pair ? pair : calls).launches_of(calls_of(messages, 0, random, buffer_of));
    EXPECT_EQ(launches.size(), 1u);
    return launches.at(0).independent;
  };
  EXPECT_TRUE(are_independent({{0, 1, much}, {1, 0, much}}));
  EXPECT_TRUE(are_independent({{0, 1, much}, {0, 2, much + 1}}));
  EXPECT_FALSE(are_independent({{0, 1, much}}));
  EXPECT_FALSE(are_independent({{2, 0, much}, {0, 0, much}}));
  // Short messages are all sent in the first round, or else, between two ranks, need the kernel that sends all of them
  // first.
  EXPECT_FALSE(are_independent({{0, 1, 500 * kb}, {1, 0, 1500 * kb}}));
  EXPECT_FALSE(are_independent({{0, 1, 1500 * kb}, {2, 0, 1}}));
  EXPECT_FALSE(are_independent({{0, 1, 500 * kb}, {1, 0, 2500 * kb}}, true));
  EXPECT_TRUE(are_independent({{0, 1, 2500 * kb}, {1, 0, 1}}, true));
  EXPECT_FALSE(are_independent({{0, 1, 2500 * kb}}, true));
  Call all_to_all_v;
  all_to_all_v.collective = Collective::all_to_all_v;
  all_to_all_v.send_counts = all_to_all_v.receive_counts = std::vector<std::size_t>(4, much);
  all_to_all_v.send_offsets = all_to_all_v.receive_offsets = {0, much, 2 * much, 3 * much};
  EXPECT_FALSE(calls.launches_of(all_to_all_v).at(0).independent);
}

/// For ranks that share a GPU, as many blocks are granted as asked for, as long as those of all ranks find room.
TEST(SharedGpus, BoundEveryLaunch) {
  constexpr std::uint32_t most = 5;
  const auto expect_bound = [](const std::vector<DeviceLaunch>& launches, std::uint32_t bound) {
    EXPECT_FALSE(launches.empty());
    for (const DeviceLaunch& launch : launches) EXPECT_LE(launch.blocks, bound);
  };
  for (const std::uint32_t max_sms : {0u, 4u, 100u}) {
    const DeviceCalls calls = nvlink_calls(0, 4, max_sms, most);
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                        Collective::all_to_all, Collective::broadcast, Collective::reduce})
      for (const std::size_t count : {std::size_t{100}, std::size_t{8} << 20, std::size_t{64} << 20})
        for (const std::uint32_t of_call : {0u, 3u, 64u}) {
          Call call;
          call.collective = collective;
          call.count = count;
          call.max_sms = of_call;
          const std::uint32_t asked = of_call != 0 ? of_call : max_sms;
          expect_bound(calls.launches_of(call), asked == 0 ? most : std::min(asked, most));
        }
    Call message;
    message.collective = Collective::send_recv;
    message.sends = true;
    message.peer = 1;
    message.count = std::size_t{64} << 20;
    expect_bound(calls.launches_of(std::span(&message, 1)), max_sms == 0 ? most : std::min(max_sms, most));
  }
}

/// Whatever is asked for, even the smallest GPU has an SM for each block.
TEST(MessagesOverNvlink, AllBlocksRunAtOnce) {
  for (const auto& [sms, max_sms] : {std::pair(78u, 0u), {78u, 16u}, {78u, 128u}, {40u, 0u}}) {
    const DeviceCalls calls = nvlink_calls(0, 4, max_sms, 0, sms);
    std::uint32_t most = 0;
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::broadcast})
      for (const std::size_t count : {std::size_t{1} << 20, std::size_t{16} << 20, std::size_t{256} << 20}) {
        Call call;
        call.collective = collective;
        call.count = count;
        for (const DeviceLaunch& launch : calls.launches_of(call)) most = std::max(most, launch.blocks);
      }
    EXPECT_EQ(most, max_sms == 16 ? 16 : sms);
  }
}

/// Calls that copy engines cannot carry take one block, and reductions no more than keep the engines busy.
TEST(NoSms, LeaveTheFewestBlocks) {
  for (const bool by_call : {false, true}) {
    const DeviceCalls calls = nvlink_calls(0, 4, by_call ? 64 : no_sms);
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                        Collective::all_to_all, Collective::broadcast, Collective::reduce})
      for (const std::size_t count : {std::size_t{100}, std::size_t{8} << 20, std::size_t{64} << 20}) {
        Call call;
        call.collective = collective;
        call.count = count;
        call.max_sms = by_call ? no_sms : 0;
        for (const DeviceLaunch& launch : calls.launches_of(call))
          EXPECT_LE(launch.blocks, is_reduction(collective) ? 4u : 1u) << name(collective) << " " << count;
      }
  }
  Random random(1);
  for (const DeviceLaunch& launch :
       nvlink_calls(0, 4, no_sms).launches_of(calls_of({{0, 1, 100}, {2, 0, 256'000 * kb}}, 0, random, buffer_of)))
    EXPECT_EQ(launch.blocks, 1u);
}

/// A block takes the protocol of one of its length in an all-to-all; so does a message that fits into free slots.
TEST(MessagesOverNvlink, ProtocolFollowsFromTheLength) {
  constexpr std::uint32_t ranks = 2;
  std::byte* const buffer = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
  for (const std::uint32_t max_sms : {0u, few_sms}) {
    const std::size_t border = max_sms == 0 ? 32'768 * kb : few_sms * 96 * kb;
    const std::size_t free_slots =
        (max_sms == 0 ? 128 : few_sms) * 3 * 15 * kb;  // one of four slots may still be taken
    for (const std::size_t bytes : {std::size_t{1}, free_slots, free_slots + 1, border, border + 1, 8 * border}) {
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
      const Protocol expected = bytes > border ? Protocol::bulk : Protocol::lines;
      const auto protocol_of = [&](const std::vector<DeviceLaunch>& launches) {
        EXPECT_EQ(launches.size(), 1u) << bytes << " bytes, max_sms " << max_sms;
        return launches.at(0).protocol;
      };
      EXPECT_EQ(protocol_of(calls.launches_of(call)), expected) << bytes << " bytes, max_sms " << max_sms;
      EXPECT_EQ(protocol_of(calls.launches_of(with_lengths)), expected) << bytes << " bytes, max_sms " << max_sms;
      EXPECT_EQ(protocol_of(calls.launches_of(std::span(&message, 1))),
                bytes > free_slots ? Protocol::bulk : Protocol::lines)
          << bytes << " bytes, max_sms " << max_sms;
    }
  }
}

/// Two hops of more than two ranks may leave three slots of each lane taken. A message that waited for one of them
/// might wait for a later launch.
TEST(MessagesOverNvlink, ShortOnesFitIntoWhatTwoHopsLeave) {
  std::byte* const buffer = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
  Call message;
  message.collective = Collective::send_recv;
  message.type = DataType::uint8;
  message.send = buffer;
  message.sends = true;
  message.peer = 1;
  for (const std::uint32_t ranks : {3u, 4u, 8u}) {
    const DeviceCalls calls = nvlink_calls(0, ranks, 0);
    std::size_t most = 0;  // the longest that goes in lines
    for (std::size_t bytes = 16 * kb; bytes < 64'000 * kb; bytes += 16 * kb) {
      message.count = bytes;
      const std::vector<DeviceLaunch> launches = calls.launches_of(std::span(&message, 1));
      ASSERT_EQ(launches.size(), 1u);
      if (launches[0].protocol != Protocol::lines) break;
      most = bytes;
      const auto& sent = std::get<kernels::Exchange>(launches[0].argument).send[1];
      ASSERT_LE(sent.bytes, std::size_t{sent.chunk_bytes} * sent.lanes) << "of a slot of each lane";
    }
    EXPECT_GT(most, 512 * kb) << ranks << " ranks";
  }
}

TEST(MessagesOverNvlink, TwoHopsOfTwoRanksTakeNoLines) {
  Call call;
  call.collective = Collective::all_reduce;
  call.type = DataType::float32;
  call.count = 250'000;
  call.send = call.receive = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 32);
  call.algorithm = find_algorithm("two_hop");
  for (const auto& launch : nvlink_calls(0, 2, 0).launches_of(call)) EXPECT_EQ(launch.protocol, Protocol::bulk);
  for (const auto& launch : nvlink_calls(0, 4, 0).launches_of(call)) EXPECT_EQ(launch.protocol, Protocol::lines);
}

}  // namespace
}  // namespace strait::testing
