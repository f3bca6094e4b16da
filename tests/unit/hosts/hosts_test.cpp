// GPU ranks of several hosts without GPUs or a network: kernels run on the CPU, with proxies, and host ranks over TCP.
#include "unit/hosts/emulated_hosts.hpp"

#include <array>

#include "host/collective_case.hpp"
#include "support/calls.hpp"

namespace strait::testing {
namespace {

/// Makes the rank's call of a case and checks its output, in memory with guards that show stray writes.
void check(EmulatedHosts::Rank& rank, const Islands& hosts, CollectiveCase c) {
  const std::uint32_t ranks = rank.hosts->ranks();
  c.islands = hosts;
  const BufferBytes sizes = buffer_bytes(c, ranks);
  std::vector<Bytes> inputs, scalars;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    inputs.push_back(random_input(c, ranks, r));
    scalars.push_back(random_scalar(c, r));
  }
  const std::size_t bytes = std::max(sizes.send, sizes.receive) + c.misalignment_bytes + 2 * guard_bytes;
  Bytes first(bytes, poison), second(bytes, poison);
  const bool inside = c.in_place && sizes.receive > sizes.send;
  std::byte* const base = first.data() + guard_bytes + c.misalignment_bytes;
  std::byte* const input = base + (inside ? own_offset(c, rank.number) : 0);
  std::byte* const output = c.in_place ? base + (inside ? 0 : own_offset(c, rank.number))
                                       : second.data() + guard_bytes + c.misalignment_bytes;
  std::copy(inputs[rank.number].begin(), inputs[rank.number].end(), input);
  rank.run(call_of(c, input, output, scalars[rank.number]));
  ASSERT_EQ(rank.failures(), "") << strait::testing::describe(c) << " on rank " << rank.number;
  const Bytes expected = expected_output(c, inputs, scalars, rank.number);
  EXPECT_EQ(first_difference(expected, {output, expected.size()}, c.type, inputs), "")
      << strait::testing::describe(c) << " on rank " << rank.number << " of " << strait::describe(hosts);
  const auto is_poison = [](std::byte each) { return each == poison; };
  Bytes& written = c.in_place ? first : second;
  std::fill_n(output, expected.size(), poison);
  if (c.in_place) std::fill_n(input, inputs[rank.number].size(), poison);
  EXPECT_TRUE(std::all_of(written.begin(), written.end(), is_poison))
      << strait::testing::describe(c) << " wrote beside its output, rank " << rank.number;
}

class Hosts : public ::testing::TestWithParam<Islands> {};
INSTANTIATE_TEST_SUITE_P(Shapes, Hosts,
                         ::testing::Values(Islands{{0}, {1}}, Islands{{0, 3}, {1, 2}}, Islands{{0, 3}, {1}, {2}}),
                         [](const auto& test) {
                           std::string name;
                           for (const Island& host : test.param) {
                             if (!name.empty()) name += "and";
                             for (const std::uint32_t rank : host) name += std::to_string(rank);
                           }
                           return name;
                         });

/// Lengths of one round, of several rounds, and of more rounds than there are slots.
TEST_P(Hosts, CollectivesHaveTheBitsOfTheReference) {
  EmulatedHosts hosts(GetParam());
  hosts.run([](EmulatedHosts::Rank& rank) {
    std::uint64_t seed = 1;
    rank.max_sms = rank.number;  // each rank may have its own limit
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce, Collective::all_gather,
          Collective::broadcast, Collective::all_to_all, Collective::gather, Collective::scatter})
      for (const std::size_t count : {1, 1501, 50'003, 170'009}) {
        CollectiveCase c;
        c.collective = collective;
        c.type = std::array{DataType::float32, DataType::bfloat16, DataType::int8, DataType::float64}[seed % 4];
        if (is_reduction(collective)) c.op = static_cast<ReduceOp>(seed % reduce_op_count);
        c.count = count / (size_bytes(c.type) > 4 ? 2 : 1);
        c.in_place = seed % 3 == 0;
        c.misalignment_bytes = seed % 5 == 0 ? size_bytes(c.type) : 0;
        c.root = static_cast<std::uint32_t>(seed % rank.hosts->ranks());
        c.seed = ++seed;
        check(rank, GetParam(), c);
        if (HasFailure()) return;
      }
  });
}

/// A long reduce-scatter is done in parts, while the network continues from one part to the next.
TEST_P(Hosts, LongReduceScatters) {
  EmulatedHosts hosts(GetParam());
  hosts.run([](EmulatedHosts::Rank& rank) {
    for (const WireFormat wire : {WireFormat::off, WireFormat::int8})
      for (const std::size_t count : {70'001, 400'001}) {  // several rounds per part, and many parts
        if (wire != WireFormat::off && !are_alike(GetParam())) continue;
        CollectiveCase c;
        c.collective = Collective::reduce_scatter;
        c.type = DataType::float32;
        c.count = count;
        c.in_place = wire == WireFormat::off;
        c.wire = wire;
        c.seed = rank.hosts->ranks();
        check(rank, GetParam(), c);
      }
  });
}

/// The root's own output is copied by its GPU.
TEST_P(Hosts, LongBroadcasts) {
  EmulatedHosts hosts(GetParam());
  hosts.run([](EmulatedHosts::Rank& rank) {
    for (std::uint32_t root = 0; root < rank.hosts->ranks(); ++root) {
      CollectiveCase c;
      c.collective = Collective::broadcast;
      c.type = DataType::float32;
      c.count = 300'001;
      c.root = root;
      c.in_place = root % 2 != 0;
      c.seed = root;
      check(rank, GetParam(), c);
    }
  });
}

/// A rank that only sends does not wait for its receivers: here these begin when rank 0 has finished all its
/// broadcasts, and later its message.
TEST(HostsOfOne, WhatIsOnlySentIsNotAwaited) {
  const Islands islands{{0}, {1}, {2}};
  constexpr std::size_t calls = 3, count = 20'001;
  EmulatedHosts hosts(islands);
  std::atomic<int> through{0};
  hosts.run([&](EmulatedHosts::Rank& rank) {
    const auto end = Deadline::after_ms(120'000);
    const auto await_root = [&](int parts) {
      while (rank.number != 0 && through < parts && !end.expired())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_FALSE(end.expired()) << "rank 0 waits for who has not begun";
    };
    await_root(1);
    for (std::size_t i = 0; i < calls; ++i) {
      CollectiveCase c;
      c.collective = Collective::broadcast;
      c.type = DataType::float32;
      c.count = count + i;
      c.in_place = i % 2 != 0;
      c.seed = i + 1;
      check(rank, islands, c);
    }
    if (rank.number == 0) through = 1;
    rank.proxy->drain();
    await_root(2);
    Bytes data = random_elements(DataType::uint8, 100'003, rank.number == 2 ? 3 : 7);
    Call message;
    message.collective = Collective::send_recv;
    message.count = data.size();
    message.sends = rank.number == 0;
    message.peer = rank.number == 0 ? 2 : 0;
    message.send = message.receive = data.data();
    if (rank.number != 1) rank.run_messages(std::span(&message, 1));
    if (rank.number == 0) through = 2;
    EXPECT_TRUE(data == random_elements(DataType::uint8, 100'003, 7)) << "rank " << rank.number << rank.failures();
  });
}

/// Whether an all-to-all is in place may differ from rank to rank.
TEST_P(Hosts, ExchangesInPlaceOnSomeRanks) {
  EmulatedHosts hosts(GetParam());
  hosts.run([](EmulatedHosts::Rank& rank) {
    for (const std::size_t count : {10, 40'003, 300'001}) {
      CollectiveCase c;
      c.collective = Collective::all_to_all;
      c.type = DataType::float32;
      c.count = count;
      c.in_place = rank.number % 2 == 0;
      c.seed = count;
      check(rank, GetParam(), c);
    }
  });
}

TEST_P(Hosts, SumsCrossInAWireFormat) {
  EmulatedHosts hosts(GetParam());
  hosts.run([](EmulatedHosts::Rank& rank) {
    std::uint64_t seed = 1;
    for (const WireFormat wire : {WireFormat::int8, WireFormat::fp8, WireFormat::int4})
      for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter})
        for (const std::size_t count : {100, 40'003}) {
          if (collective == Collective::reduce_scatter && !are_alike(GetParam())) continue;
          CollectiveCase c;
          c.collective = collective;
          c.type = std::array{DataType::float32, DataType::bfloat16, DataType::float16}[seed % 3];
          c.op = std::array{ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum}[seed / 2 % 3];
          c.count = count;
          c.wire = wire;
          c.seed = ++seed;
          check(rank, GetParam(), c);
          if (HasFailure()) return;
        }
  });
}

/// Elements and residuals are as host ranks leave them, also after a second call, which sends what the first one lost.
/// Here hosts have one rank, so that their sums are their inputs, and only some ranks have residuals.
TEST(HostsOfOne, KeepResiduals) {
  EmulatedHosts hosts({{0}, {1}, {2}});
  hosts.run([](EmulatedHosts::Rank& rank) {
    for (const WireFormat wire : {WireFormat::int8, WireFormat::int4})
      for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter})
        for (const std::size_t count : {1, 777, 20'001, 150'003}) {
          const std::size_t sent = count * (collective == Collective::reduce_scatter ? 3 : 1);
          const Bytes input = random_elements(DataType::bfloat16, 2 * sent, rank.number + count);
          std::vector<float> residuals[2] = {std::vector<float>(sent + 1, 0.25f), std::vector<float>(sent + 1, 0.25f)};
          Bytes outputs[2] = {Bytes(2 * sent, poison), Bytes(2 * sent, poison)};
          for (int turn = 0; turn < 2; ++turn) {
            Call call;
            call.collective = collective;
            call.type = DataType::bfloat16;
            call.op = ReduceOp::avg;
            call.count = count;
            call.wire = wire;
            call.send = input.data();
            for (const bool on_host : {false, true}) {
              call.receive = outputs[on_host].data();
              call.residual = rank.number == 1 ? nullptr : residuals[on_host].data();
              if (on_host) {
                const Status done = rank.all.front()->run(call);
                ASSERT_TRUE(done) << done.error().message;
              } else {
                rank.run(call);
              }
            }
            EXPECT_EQ(outputs[0], outputs[1]) << count << " in turn " << turn;
            EXPECT_EQ(std::memcmp(residuals[0].data(), residuals[1].data(), (sent + 1) * sizeof(float)), 0)
                << count << " in turn " << turn;
            EXPECT_EQ(residuals[0].back(), 0.25f);
          }
        }
  });
}

/// Messages of any length from each rank to each, including itself, several for a pair of ranks, in groups that lack
/// some pairs.
TEST_P(Hosts, Messages) {
  EmulatedHosts hosts(GetParam());
  hosts.run([](EmulatedHosts::Rank& rank) {
    const std::uint32_t ranks = rank.hosts->ranks();
    for (std::uint64_t turn = 0; turn < 4; ++turn) {
      const auto bytes_of = [turn](std::uint64_t from, std::uint64_t to, std::uint64_t nth) {
        const std::uint64_t bits = mix(turn * 1000 + from * 100 + to * 10 + nth);
        return static_cast<std::size_t>(bits / 4 % (bits % 3 == 0 ? 600'000 : 5000));
      };
      const auto data_of = [&](std::uint32_t from, std::uint32_t to, std::uint32_t nth) {
        return random_elements(DataType::uint8, bytes_of(from, to, nth), turn * 7919 + from * 101 + to * 11 + nth);
      };
      std::vector<Bytes> sent, received, expected;
      std::vector<Call> messages;
      for (std::uint32_t peer = 0; peer < ranks; ++peer)
        for (std::uint32_t nth = 0; nth < 1 + turn % 3; ++nth) {
          sent.push_back(data_of(rank.number, peer, nth));
          expected.push_back(data_of(peer, rank.number, nth));
          received.emplace_back(expected.back().size() + guard_bytes, poison);
          Call message;
          message.collective = Collective::send_recv;
          message.type = DataType::uint8;
          message.peer = peer;
          message.sends = true;
          message.count = sent.back().size();
          message.send = sent.back().data();
          messages.push_back(message);
          message.sends = false;
          message.count = expected.back().size();
          message.receive = received.back().data();
          messages.push_back(message);
        }
      rank.run_messages(messages);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i].resize(received[i].size(), poison);
        EXPECT_EQ(first_difference(expected[i], received[i], DataType::uint8), "") << "message " << i;
      }
    }
  });
}

/// Acts as a HostsRank's attendant: when one of the rank's communicators fails, all of them fail.
std::jthread attend(EmulatedHosts::Rank& rank) {
  return std::jthread([&rank](const std::stop_token& stop) {
    while (!stop.stop_requested() && !rank.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (rank.has_failed()) EmulatedHosts::fail(rank);
  });
}

/// The two ends of a message have different lengths, which may use different lanes.
TEST_P(Hosts, MessagesOfOtherLengthsAreTold) {
  for (const std::size_t other : {200'000, 700'000, 1'048'576}) {
    EmulatedHosts hosts(GetParam());
    hosts.run([other](EmulatedHosts::Rank& rank) {
      if (rank.number > 1) return;
      const std::jthread attendant = attend(rank);
      Bytes data(std::size_t{1} << 20);
      Call message;
      message.collective = Collective::send_recv;
      message.sends = rank.number == 0;
      message.peer = 1 - rank.number;
      message.count = rank.number == 0 ? 786'432 : other;
      message.send = message.receive = data.data();
      rank.run_messages({&message, 1});
      EXPECT_TRUE(rank.number == 0 || rank.has_failed());
      const auto parts = rank.parts();
      const auto tells = [](const Comm* comm) {
        return !comm->sticky() && comm->sticky().error().code == Code::mismatch;
      };
      EXPECT_TRUE(rank.number == 0 || std::any_of(parts.begin(), parts.end(), tells));
    });
  }
}

/// Ranks wait for one that never calls until the communicator fails; then kernels and proxies end.
TEST_P(Hosts, AFailureEndsWhatWaits) {
  EmulatedHosts hosts(GetParam());
  hosts.run([](EmulatedHosts::Rank& rank) {
    if (rank.number == rank.hosts->ranks() - 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return EmulatedHosts::fail(rank);
    }
    const std::jthread attendant = attend(rank);
    Bytes data(100'000);
    Call barrier;  // among all ranks, so that no rank waits within a host
    barrier.collective = Collective::all_gather;
    barrier.count = 10;
    barrier.send = barrier.receive = data.data();
    rank.run(barrier);
    EXPECT_TRUE(rank.has_failed());
    EXPECT_NE(rank.counts.gave_up, 0u);
  });
}

/// Rounds of calls of 8 MB or more have one length, so rounds of calls that differ in length look alike.
TEST(HostsOfOne, LongCallsOfOtherLengthsAreTold) {
  EmulatedHosts hosts({{0}, {1}});
  hosts.run([](EmulatedHosts::Rank& rank) {
    const std::jthread attendant = attend(rank);
    constexpr std::size_t mega = (std::size_t{1} << 20) / 4;
    std::vector<std::int32_t> in(30 * mega, rank.number == 0 ? 1 : 100), out(30 * mega);
    if (rank.number == 0) std::fill(in.begin() + 20 * mega, in.end(), 10);
    if (rank.number == 1) std::fill(in.begin() + 20 * mega, in.end(), 1000);
    const auto sum = [&](std::size_t first, std::size_t count) {
      Call call;
      call.collective = Collective::all_reduce;
      call.type = DataType::int32;
      call.op = ReduceOp::sum;
      call.count = count;
      call.send = in.data() + first;
      call.receive = out.data() + first;
      rank.run(call);
    };
    if (rank.number == 0) {
      sum(0, 20 * mega);
      sum(20 * mega, 10 * mega);
    } else {
      sum(0, 30 * mega);
    }
    EXPECT_TRUE(rank.has_failed());
    EXPECT_NE(rank.failures().find(std::to_string(30 * mega)), std::string::npos)
        << "the user's count: " << rank.failures();
  });
}

}  // namespace
}  // namespace strait::testing
