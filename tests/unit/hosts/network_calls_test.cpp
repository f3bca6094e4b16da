// How a call's data that leaves the host is divided into launches: a pure function, checked for many ranks.
#include "network/network_calls.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

namespace strait::testing {
namespace {

constexpr std::uint32_t slot_bytes = 1 << 20, piece_bytes = 128 << 10;

std::vector<Island> hosts_of(std::uint32_t hosts, std::uint32_t ranks_of_each) {
  std::vector<Island> all(hosts);
  for (std::uint32_t rank = 0; rank < hosts * ranks_of_each; ++rank) all[rank / ranks_of_each].push_back(rank);
  return all;
}

/// Returns the step of an all-to-all that goes to other hosts, in place in `data`.
IslandStep exchange_of(const std::vector<Island>& hosts, std::uint32_t rank, std::size_t count, std::byte* data) {
  Call call;
  call.collective = Collective::all_to_all;
  call.type = DataType::uint8;
  call.count = count;
  call.send = call.receive = data;
  const DeviceIslands islands(rank, hosts, nullptr, DeviceIslands::scratch_bytes);
  return islands.steps_of(call).back();
}

struct Shape {
  std::uint32_t hosts, ranks_of_each, lanes;
  std::size_t count;
};
class NetworkExchanges : public ::testing::TestWithParam<Shape> {
 protected:
  std::vector<Island> hosts() const { return hosts_of(GetParam().hosts, GetParam().ranks_of_each); }
  std::uint32_t ranks() const { return GetParam().hosts * GetParam().ranks_of_each; }
  std::vector<NetworkLaunch> launches_of(std::uint32_t rank, std::byte* data) const {
    return NetworkCalls(rank, hosts(), {slot_bytes, piece_bytes, GetParam().lanes})
        .launches_of(exchange_of(hosts(), rank, GetParam().count, data));
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, NetworkExchanges,
                         ::testing::Values(Shape{2, 1, 8, 4 << 20}, Shape{6, 1, 8, 4 << 20}, Shape{3, 1, 16, 8 << 20},
                                           Shape{7, 8, 3, 100'000}, Shape{16, 8, 1, 50'000}, Shape{2, 8, 4, 1 << 20}));

/// In place, data is received only after the data that it overwrites has been sent: in a later launch, or in the same
/// one after the flow that sends it.
TEST_P(NetworkExchanges, NothingOverwritesWhatIsStillToBeSent) {
  std::vector<std::byte> data(1);  // only its addresses matter
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    std::map<const std::byte*, std::size_t> sent_in;  // the launch, by the address where a stripe begins
    const auto launches = launches_of(rank, data.data());
    for (std::size_t number = 0; number < launches.size(); ++number)
      for (const kernels::Flow& flow : launches[number].flows)
        if (flow.sends) sent_in[flow.data] = number;
    for (std::size_t number = 0; number < launches.size(); ++number) {
      const auto& flows = launches[number].flows;
      EXPECT_LE(flows.size(), kernels::max_flows);
      for (const kernels::Flow& flow : flows) {
        if (flow.sends) continue;
        ASSERT_TRUE(sent_in.contains(flow.data));
        const std::size_t sent = sent_in[flow.data];
        ASSERT_LE(sent, number) << "rank " << rank;
        if (sent < number) continue;
        ASSERT_NE(flow.after, 0);
        const kernels::Flow& before = flows[flow.after - 1u];
        EXPECT_TRUE(before.sends && before.data == flow.data && before.bytes == flow.bytes);
      }
    }
  }
}

/// Both ends of every stripe agree on its length, its lane, and its position among the stripes of that lane.
TEST_P(NetworkExchanges, EndsAgree) {
  std::vector<std::byte> data(1);
  using Pair = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // from, to, lane
  std::map<Pair, std::vector<std::size_t>> sent, received;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank)
    for (const NetworkLaunch& launch : launches_of(rank, data.data()))
      for (const kernels::Flow& flow : launch.flows) {
        EXPECT_EQ(flow.whole_bytes, GetParam().count);
        EXPECT_LT(flow.lane, GetParam().lanes);
        EXPECT_GE(flow.depth, 1);
        if (flow.sends)
          sent[{rank, flow.peer, flow.lane}].push_back(flow.bytes);
        else
          received[{flow.peer, rank, flow.lane}].push_back(flow.bytes);
      }
  EXPECT_EQ(sent, received);
}

/// The launches of a rank run one after another. No set of messages waits in a circle.
TEST_P(NetworkExchanges, NoLaunchesWaitInACircle) {
  std::vector<std::byte> data(1);
  std::vector<std::vector<NetworkLaunch>> all;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) all.push_back(launches_of(rank, data.data()));
  std::vector<std::size_t> at(ranks());  // the launch that each rank has reached
  const auto has_come_to = [&](std::uint32_t rank, std::uint32_t peer) {
    for (std::size_t number = 0; number <= at[rank] && number < all[rank].size(); ++number)
      for (const kernels::Flow& flow : all[rank][number].flows)
        if (flow.peer == peer) return true;
    return false;
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      if (at[rank] == all[rank].size()) continue;
      const auto& flows = all[rank][at[rank]].flows;
      const auto is_met = [&](const kernels::Flow& flow) { return has_come_to(flow.peer, rank); };
      if (!std::all_of(flows.begin(), flows.end(), is_met)) continue;
      ++at[rank];
      moves = true;
    }
  }
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) EXPECT_EQ(at[rank], all[rank].size()) << "rank " << rank;
}

/// A rank's block for itself is copied separately if it is long, and not already in place; if short, the kernel copies
/// it, or it goes along with the others.
TEST(NetworkCopies, AreOfWhatStaysWithTheRank) {
  std::vector<std::byte> memory(1);  // only its addresses matter
  std::byte* const from = memory.data();
  std::byte* const to = from + (std::size_t{1} << 40);
  constexpr std::uint32_t hosts = 3, rank = 1;
  const NetworkCalls calls(rank, hosts_of(hosts, 1), {slot_bytes, piece_bytes, 8});
  for (const std::size_t count : {std::size_t{1000}, std::size_t{64} << 10, std::size_t{5'000'000}})
    for (const bool in_place : {false, true}) {
      const bool is_long = count >= 64 << 10;
      IslandStep gather;
      gather.among = IslandStep::Among::across;
      gather.call.collective = Collective::all_gather;
      gather.call.type = DataType::uint8;
      gather.call.count = count;
      gather.call.receive = to;
      gather.call.send = in_place ? to + rank * count : from;
      for (const IslandStep& step : {gather, exchange_of(hosts_of(hosts, 1), rank, count, from)}) {
        const bool gathers = step.among == IslandStep::Among::across;
        const auto launches = calls.launches_of(step);
        ASSERT_EQ(launches.size(), 1u);
        const NetworkLaunch& launch = launches.front();
        EXPECT_EQ(launch.copies.size(), is_long && gathers && !in_place ? 1u : 0u) << count;
        EXPECT_EQ(launch.local_copy.bytes, is_long || !gathers || in_place ? 0 : count);
        auto copies = launch.copies;
        if (launch.local_copy.bytes != 0) copies.push_back(launch.local_copy);
        for (const auto& copy : copies) {
          EXPECT_EQ(copy.from, from);
          EXPECT_EQ(copy.to, to + rank * count);
          EXPECT_EQ(copy.bytes, count);
        }
        std::map<std::byte*, std::size_t> comes;
        for (const kernels::Flow& flow : launch.flows) {
          if (gathers) {
            EXPECT_EQ(flow.block, flow.sends ? 0 : (flow.data - to) / static_cast<std::ptrdiff_t>(count));
            EXPECT_TRUE(flow.sends || flow.block != rank);
          } else {
            EXPECT_TRUE(flow.peer != rank || !is_long);
          }
          if (!flow.sends) comes[flow.data] += flow.bytes;
        }
        std::size_t bytes = 0;
        for (const auto& [place, each] : comes) bytes += each;
        EXPECT_EQ(bytes, (is_long || gathers ? hosts - 1 : hosts) * count);
        EXPECT_TRUE(launch.call.is_awaited);
      }
    }
}

TEST(NetworkCopies, AreOfWhatABroadcastsRootKeeps) {
  std::vector<std::byte> memory(1);
  std::byte* const from = memory.data();
  std::byte* const elsewhere = from + (std::size_t{1} << 40);
  const NetworkCalls calls(1, hosts_of(3, 1), {slot_bytes, piece_bytes, 8});
  for (const std::size_t count : {std::size_t{1000}, std::size_t{64} << 10, std::size_t{5'000'000}})
    for (std::byte* const to : {from, elsewhere}) {
      IslandStep broadcast;
      broadcast.among = IslandStep::Among::across;
      broadcast.call.collective = Collective::broadcast;
      broadcast.call.type = DataType::uint8;
      broadcast.call.root = 1;
      broadcast.call.count = count;
      broadcast.call.send = from;
      broadcast.call.receive = to;
      const auto launches = calls.launches_of(broadcast);
      ASSERT_EQ(launches.size(), 1u);
      const bool is_copied = to != from, is_long = count >= 64 << 10;
      EXPECT_EQ(launches[0].copies.size(), is_copied && is_long ? 1u : 0u) << count;
      EXPECT_EQ(launches[0].local_copy.bytes, is_copied && !is_long ? count : 0) << count;
      auto copies = launches[0].copies;
      if (is_copied && !is_long) copies.push_back(launches[0].local_copy);
      for (const auto& copy : copies) EXPECT_TRUE(copy.from == from && copy.to == to && copy.bytes == count);
      ASSERT_EQ(launches[0].flows.size(), 1u);
      EXPECT_FALSE(launches[0].call.is_awaited);
      EXPECT_EQ(launches[0].end_step, launches[0].call.rounds);
    }
}

/// Launches of ranks that only send are not awaited: their kernels end once all data is in slots. All other launches
/// are awaited.
TEST(NetworkLaunches, AreAwaitedWhereAnythingComes) {
  std::vector<std::byte> memory(1);
  const auto islands = hosts_of(3, 1);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const NetworkCalls calls(rank, islands, {slot_bytes, piece_bytes, 8});
    const auto is_awaited = [&](Collective collective, IslandStep::Among among, float* residual = nullptr) {
      IslandStep step;
      step.among = among;
      step.call.collective = collective;
      step.call.count = 100;
      step.call.root = 1;
      step.call.send = step.call.receive = memory.data();
      if (residual != nullptr) step.call.wire = WireFormat::int8;
      step.call.residual = residual;
      const NetworkLaunch launch = calls.launches_of(step).at(0);
      EXPECT_EQ(launch.end_step, kernels::steps_of(launch.call));
      return launch.call.is_awaited;
    };
    constexpr auto across = IslandStep::Among::across, all = IslandStep::Among::all;
    for (const auto among : {across, all}) {
      EXPECT_EQ(is_awaited(Collective::broadcast, among), rank != 1);
      EXPECT_EQ(is_awaited(Collective::reduce, among), rank == 1);
      EXPECT_TRUE(is_awaited(Collective::all_reduce, among));
    }
    EXPECT_TRUE(is_awaited(Collective::reduce, across, reinterpret_cast<float*>(memory.data())));
    EXPECT_TRUE(is_awaited(Collective::barrier, all));
    Call message;
    message.collective = Collective::send_recv;
    message.count = 100;
    message.peer = (rank + 1) % 3;
    message.send = message.receive = memory.data();
    for (const bool sends : {true, false}) {
      message.sends = sends;
      EXPECT_EQ(calls.launches_of_messages(std::span(&message, 1)).at(0).call.is_awaited, !sends);
    }
  }
}

TEST(NetworkCopies, NeedNoKernel) {
  std::vector<std::byte> memory(1);
  Call send;
  send.collective = Collective::send_recv;
  send.type = DataType::float32;
  send.count = 1 << 20;
  send.peer = 0;
  send.sends = true;
  send.send = memory.data();
  Call receive = send;
  receive.sends = false;
  receive.receive = memory.data() + (std::size_t{1} << 40);
  const NetworkCalls calls(0, hosts_of(2, 1), {slot_bytes, piece_bytes, 8});
  const auto launches = calls.launches_of_messages(std::array{send, receive});
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_TRUE(launches.front().flows.empty());
  ASSERT_EQ(launches.front().copies.size(), 1u);
  EXPECT_EQ(launches.front().copies[0].bytes, std::size_t{4} << 20);
}

/// Calls have eight rounds, except short and very long ones. Stripes are no shorter than a piece.
TEST(NetworkLengths, OfRoundsAndStripes) {
  std::vector<std::byte> memory(1);
  const NetworkCalls calls(0, hosts_of(2, 1), {slot_bytes, piece_bytes, 8});
  IslandStep sum;
  sum.among = IslandStep::Among::across;
  sum.call.collective = Collective::all_reduce;
  sum.call.type = DataType::uint8;
  sum.call.send = sum.call.receive = memory.data();
  const auto rounds_of = [&](std::size_t bytes) {
    sum.call.count = bytes;
    return calls.launches_of(sum).at(0).call.rounds;
  };
  EXPECT_EQ(rounds_of(100'000), 1u);
  EXPECT_EQ(rounds_of(1 << 20), 8u);
  for (const std::size_t odd : {1, 7, 4'000}) EXPECT_EQ(rounds_of((1 << 20) + odd), 8u) << odd;
  EXPECT_EQ(rounds_of((std::size_t{4} << 20) + 3), 8u);
  EXPECT_EQ(rounds_of(std::size_t{64} << 20), 64u);
  const auto stripes_of = [&](std::size_t bytes) {
    const auto launches = calls.launches_of(exchange_of(hosts_of(2, 1), 0, bytes, memory.data()));
    const auto& flows = launches.at(0).flows;
    return std::count_if(flows.begin(), flows.end(), [](auto& flow) { return flow.sends && flow.peer == 1; });
  };
  EXPECT_EQ(stripes_of(200'000), 1);
  EXPECT_EQ(stripes_of(256 << 10), 2);
  EXPECT_EQ(stripes_of(1 << 20), 8);
  EXPECT_EQ(stripes_of(std::size_t{1} << 30), 8);
}

/// A long reduce-scatter in parts: the launches of the parts form the steps of one call. Each step reads its part's
/// data in scratch, and writes to the part's place in the block.
TEST(NetworkParts, AreOneCall) {
  constexpr std::size_t scratch_bytes = 4 << 20;
  std::vector<std::byte> memory(1);  // only its addresses matter
  std::byte* const scratch = memory.data();
  std::byte* const output = scratch + (std::size_t{1} << 40);
  auto* const residuals = reinterpret_cast<float*>(output + (std::size_t{1} << 40));
  for (const std::uint32_t hosts : {2, 3, 7, 29, 64})
    for (const WireFormat wire : {WireFormat::off, WireFormat::int8})
      for (const std::size_t count : {1'000, 100'003, 2'000'003, 33'554'432, 100'000'001}) {
        Call call;
        call.collective = Collective::reduce_scatter;
        call.type = DataType::float16;
        call.op = ReduceOp::sum;
        call.count = count;
        call.wire = wire;
        call.receive = output;
        const bool has_residual = wire != WireFormat::off && hosts <= most_residual_hosts;
        if (has_residual) call.residual = residuals;
        const auto islands = hosts_of(hosts, 2);
        const NetworkCalls calls(0, islands, {slot_bytes, piece_bytes, 8});
        std::uint32_t next = 0, rounds = 0;
        std::size_t taken = 0;
        for (const IslandStep& step : strait::DeviceIslands(0, islands, scratch, scratch_bytes).steps_of(call)) {
          if (step.among != IslandStep::Among::across) continue;
          const auto launches = calls.launches_of(step);
          ASSERT_EQ(launches.size(), 1u);
          const NetworkLaunch& launch = launches.front();
          ASSERT_EQ(launch.flows.size(), hosts + 1 + (has_residual ? 2 * hosts : 0));
          ASSERT_LE(launch.flows.size(), kernels::max_flows);
          EXPECT_EQ(launch.call.residual_blocks, has_residual ? hosts : 0);
          rounds = launch.call.rounds;
          EXPECT_EQ(launch.first_step, next);
          next = launch.end_step;
          for (std::uint32_t i = hosts + 1; i < launch.flows.size(); ++i) {
            const kernels::Flow& flow = launch.flows[i];
            EXPECT_EQ(flow.bytes, count * sizeof(float));
            EXPECT_EQ(flow.slot_offset, launch.call.residual_offset);
            EXPECT_LE(flow.slot_offset + hosts * flow.piece_bytes, slot_bytes);
            EXPECT_EQ(flow.piece_bytes, 2 * launch.flows[0].piece_bytes);
            const auto* const own =
                reinterpret_cast<const std::byte*>(residuals + taken / 2 * hosts + flow.block * step.call.count);
            EXPECT_EQ(flow.data + 2 * taken, own);
          }
          for (const kernels::Flow& flow : std::span(launch.flows).first(hosts + 1)) {
            EXPECT_EQ(flow.bytes, count * 2);
            EXPECT_LE(flow.piece_bytes * hosts, slot_bytes);
            EXPECT_EQ(flow.piece_bytes % (wire == WireFormat::off ? 16 : wire::block_elements * 2), 0u);
            if (!flow.sends) {
              EXPECT_EQ(flow.data, output);
            }
          }
          for (std::uint32_t round = launch.first_step; round < std::min(launch.end_step, rounds); ++round)
            for (std::uint32_t host = 0; host < hosts; ++host) {
              const kernels::Flow& flow = launch.flows[host];
              const auto piece = kernels::piece_of(flow, round);
              const std::byte* const block = scratch + host * step.call.count * 2;
              ASSERT_EQ(flow.data + piece.offset - block, static_cast<std::ptrdiff_t>(piece.offset - taken));
              ASSERT_LE(piece.offset - taken + piece.bytes, step.call.count * 2);
            }
          taken += step.call.count * 2;
        }
        EXPECT_EQ(next, rounds + kernels::network_depth);
        EXPECT_EQ(taken, count * 2);
      }
}

TEST(NetworkLaunches, HeedTheBoundOfThreadBlocks) {
  NetworkLaunch messages;
  messages.call.collective = Collective::send_recv;
  messages.flows.resize(88);
  EXPECT_EQ(NetworkCalls::blocks_for(messages, 0), 4u);
  EXPECT_EQ(NetworkCalls::blocks_for(messages, 1), 3u) << "each has 32 flows at most";
  messages.flows.resize(2);
  EXPECT_EQ(NetworkCalls::blocks_for(messages, 0), 2u);
  EXPECT_EQ(NetworkCalls::blocks_for(messages, 1), 1u);
  NetworkLaunch rounds;
  rounds.call.collective = Collective::all_reduce;
  rounds.flows.resize(2);
  for (kernels::Flow& flow : rounds.flows) flow.bytes = flow.piece_bytes = 1 << 20;
  EXPECT_EQ(NetworkCalls::blocks_for(rounds, 0), 4u);
  EXPECT_EQ(NetworkCalls::blocks_for(rounds, 2), 2u);
  EXPECT_EQ(NetworkCalls::blocks_for(rounds, no_sms), 1u);
}

}  // namespace
}  // namespace strait::testing
